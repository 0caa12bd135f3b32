"""A local Spark session with sensible settings, for the demo, the benchmarks and first steps."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from midstream.errors import PlanError
from midstream.spark.java import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How Spark writes its logs of a query. By default it uses Hadoop's `FileContext`, which on a local disk, without
# Hadoop's native library, runs ten processes (`chmod`, `readlink`) for each file, three files an epoch; this runs two.
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
PLAIN_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# How long Spark keeps the log of a file source for epochs whose offsets are gone: by default ten minutes, for stores
# that show a new file with a delay. It lists them all in every epoch: of a thousand epochs, in 35 ms.
FILES_KEPT = "spark.sql.streaming.fileSource.log.cleanupDelay"

# Lets `availableNow` work over a source that cannot do it by itself, such as the heartbeat: without it Spark runs one
# batch, whatever the limits of the other sources are.
AVAILABLE_NOW = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"

QUICK_LOGS: dict[str, Any] = {FILE_MANAGER: PLAIN_FILES, FILES_KEPT: "0ms"}


def s3_settings() -> dict[str, Any]:
    """Return the settings of a session, besides credentials, with which Spark reaches S3 where `pyarrow` does.

    They name the connector, `hadoop-aws` in the version of Hadoop that PySpark has, which Spark gets from Maven
    Central (with a library of Amazon's, of 690 MB) unless a cluster has it; and the store that `AWS_ENDPOINT_URL` and
    `AWS_REGION` name. Credentials are in no setting: both sides take them from `AWS_ACCESS_KEY_ID`,
    `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, or from the role of the machine.
    """
    settings = {"spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{_hadoop_version()}"}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"  # as pyarrow has it where there is an address
        settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(endpoint.startswith("https:")).lower()
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings


def _hadoop_version() -> str:
    """Return the version of Hadoop that PySpark has: connectors of another one do not fit."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    found = [
        path.stem.removeprefix("hadoop-client-api-") for path in Path(home, "jars").glob("hadoop-client-api-*.jar")
    ]
    if not found:
        raise PlanError(
            f"there is no hadoop-client-api in {home}/jars; name the connector that fits your Spark yourself"
        )
    return found[0]


def local_session(
    name: str = "midstream",
    *,
    cores: int | None = None,
    memory: str = "2g",
    settings: Mapping[str, Any] | None = None,
) -> SparkSession:
    """Start Spark in this process: all cores, tasks that may be retried, loopback only, quiet.

    `settings` are further settings of Spark: `s3_settings()`, for example.

    Not promised: settings of a session that runs already; Spark then returns that one.
    """
    require_java()
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.appName(name)
        .master(f"local[{cores or os.cpu_count() or 2},4]")
        .config("spark.driver.memory", memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")  # over TCP every Python task waits 40 ms for an ACK
        .config(map=QUICK_LOGS)
        .config("spark.log.level", "ERROR")
        .config(map=dict(settings or {}))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    if "PYSPARK_PYTHON" not in os.environ:
        session.sparkContext.pythonExec = sys.executable  # else tasks run in the first `python3` on the PATH
    return session


@contextmanager
def quiet_session(name: str) -> Iterator[SparkSession]:
    """Start Spark for a command, and stop it, with its output held back."""
    with held_back(lambda: local_session(name)) as session:
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def held_back(start: Callable[[], SparkSession]) -> Iterator[SparkSession]:
    """Start Spark; show what Java and its Python workers print from then on only if something goes wrong.

    They print much, and workers that are idle may end with a traceback of a broken pipe.
    """
    with TemporaryDirectory(prefix="midstream-") as directory:
        said = Path(directory, "said")
        try:
            with _stderr_to(said):
                session = start()
            yield session
        except PlanError:  # its message says what is wrong
            raise
        except Exception:
            sys.stderr.write(said.read_text(errors="replace"))
            raise


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Let processes that are started meanwhile write their stderr to a file for as long as they live."""
    sys.stderr.flush()
    own = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


@contextmanager
def plain_files(spark: SparkSession) -> Iterator[None]:
    """Let a query that starts meanwhile write its logs as `PLAIN_FILES` does, unless the user has chosen a manager."""
    chosen = spark.conf.get(FILE_MANAGER, None)
    if chosen is None:
        spark.conf.set(FILE_MANAGER, PLAIN_FILES)  # the query keeps a copy of the session as it is now
    try:
        yield
    finally:
        if chosen is None:
            spark.conf.unset(FILE_MANAGER)
