"""Archive the classes of Spark for Java, so that the drivers of the tests start in two thirds of the time.

    python tools/classes.py .venv/spark-classes.jsa

Java writes down at its end what it has loaded; another one with `-XX:SharedArchiveFile` maps that file instead of
reading, checking and linking ten thousand classes. A Java that is not the same, or has other files on its class path,
ignores it.
"""

from __future__ import annotations

import os
import sys
import tempfile


def main(target: str) -> None:
    """Run a job as the tests do, and wait until Java has written its archive."""
    made = f"{target}.{os.getpid()}"
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={made} -Xlog:disable"
    sys.path.insert(0, os.getcwd())
    from pyspark import SparkContext

    from tests.faults import workload
    from tests.support.session import local

    spark = local()
    with tempfile.TemporaryDirectory() as root:
        workload.start(spark, root).await_termination()
    spark.stop()
    java = SparkContext._gateway.proc
    java.stdin.close()
    java.wait()
    os.replace(made, target)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
