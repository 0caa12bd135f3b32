"""The workbench of a benchmark: a Spark session and a directory of its own, both gone at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from midstream.errors import MidstreamError
from midstream.spark.java import require_java
from midstream.spark.session import QUICK_LOGS, held_back

_POLL_SECONDS = 0.03
_LOG_LEVEL = "ERROR"
_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": _LOG_LEVEL,
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",  # for all: over TCP every Python task waits 40 ms for an ACK
    "spark.sql.streaming.numRecentProgressUpdates": "100000",  # all epochs of a run
    **QUICK_LOGS,  # as a session of Midstream has them: here for all
    # Spark's own state at its best: the advice of its guide. Midstream does not use it.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",
    f"{_ROCKSDB}.trackTotalNumberOfRows": "false",
}


@dataclass(frozen=True, slots=True)
class Workbench:
    """A session with a directory."""

    spark: SparkSession
    directory: str
    cores: int

    @contextlib.contextmanager
    def scratch(self, name: str) -> Iterator[str]:
        """Return a directory for one run; what the run leaves there and in the JVM does not burden the next."""
        pause()
        path = tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(Exception):
                self.spark._jvm.System.gc()  # type: ignore[union-attr]


@contextlib.contextmanager
def workbench() -> Iterator[Workbench]:
    """Start Spark with all cores of the machine; end it and delete every file, also after Ctrl-C.

    Not promised: a session beside another one. The JVM's memory and the session's settings are part of what
    is measured, so a benchmark needs a process of its own.
    """
    require_java()
    if SparkContext._active_spark_context is not None:
        raise MidstreamError(
            "a Spark session runs in this process already; run the benchmark in a process of its own, "
            "with 'midstream bench ...', or stop the session first"
        )
    cores = available_cores()
    directory = tempfile.mkdtemp(prefix="midstream-bench-")
    before = signal.getsignal(signal.SIGINT)  # Spark sets one of its own
    try:
        with held_back(lambda: _session(cores, directory)) as spark:
            try:
                with _ctrl_c(spark, before):
                    yield Workbench(spark, directory, cores)
            finally:
                with quiet(spark):
                    for query in spark.streams.active:
                        query.stop()
                    spark.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


_interrupted = threading.Event()


def pause() -> None:
    """Sleep a moment; here Ctrl-C takes effect.

    In the middle of a call into the JVM it would leave the answer unread, and every later call would get the
    answer to the one before.
    """
    time.sleep(_POLL_SECONDS)
    if _interrupted.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def _ctrl_c(spark: SparkSession, before: Any) -> Iterator[None]:
    """Take Ctrl-C at the next `pause`; a batch query is cancelled for it. A second Ctrl-C is taken at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread only
        return

    def on_signal(*_: object) -> None:
        if _interrupted.is_set():
            raise KeyboardInterrupt
        _interrupted.set()
        threading.Thread(target=_cancel_batch_query, args=(spark,), daemon=True).start()

    _interrupted.clear()
    signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    except Exception:
        if _interrupted.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    if _interrupted.is_set():
        raise KeyboardInterrupt


def _cancel_batch_query(spark: SparkSession) -> None:
    with contextlib.suppress(Exception):  # the session may be gone meanwhile
        if not spark.streams.active:
            set_log_level(spark, "OFF")
            spark.sparkContext.cancelAllJobs()


def available_cores() -> int:
    """Count the cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


@contextlib.contextmanager
def quiet(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from logging, as an error, that a query was ended in the middle of an epoch."""
    context = spark.sparkContext
    set_log_level(spark, "OFF")
    try:
        yield
        deadline = time.monotonic() + 10
        while _is_busy(context) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)  # tasks that were killed report later than `stop` returns
    finally:
        if context._jsc is not None:  # the session may have been stopped
            set_log_level(spark, _LOG_LEVEL)


def set_log_level(spark: SparkSession, level: str) -> None:
    """Set the level of all loggers: `setLogLevel` does not reach those that have one of their own."""
    log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setAllLevels("", log4j.Level.toLevel(level))


def _is_busy(context: SparkContext) -> bool:
    return context._jsc is not None and bool(context.statusTracker().getActiveStageIds())


def _session(cores: int, directory: str) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{cores},4]").appName("midstream bench")
    for name, setting in SETTINGS.items():
        builder = builder.config(name, setting)
    builder = builder.config("spark.sql.shuffle.partitions", str(cores))
    builder = builder.config("spark.local.dir", os.path.dirname(directory))  # Spark tidies up what it puts there
    builder = builder.config("spark.sql.warehouse.dir", os.path.join(directory, "warehouse"))
    spark = builder.getOrCreate()
    set_log_level(spark, _LOG_LEVEL)
    if "PYSPARK_PYTHON" not in os.environ:
        spark.sparkContext.pythonExec = sys.executable  # else the first `python3` on the PATH
    return spark
