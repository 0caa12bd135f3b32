"""Read one more source in a running job: state and the other sources go on.

It prints:

    {'ann': 2}
    Completed: add source 'mobile', insert 'all'
    {'ann': 3, 'bob': 1}
"""

from __future__ import annotations

import os
import tempfile

from pyspark.sql import DataFrame, SparkSession

import midstream as ms
from midstream.spark.session import local_session
from midstream.testing import Live


def main(spark: SparkSession) -> None:
    """Count views of the site, then of the site and of the mobile app."""
    out = ms.sinks.memory()

    def build(flow: ms.Flow, site: ms.Stream) -> None:
        site.key_by("user").aggregate("views", n=ms.count()).sink("out", out)

    def counts() -> dict[str, int]:
        return {row.user: row.n for row in sorted(out.rows(), key=lambda row: (row.user, row.n))}

    with tempfile.TemporaryDirectory() as directory, Live(spark, build, site="user string") as live:
        live.feed("site", [("ann",), ("ann",)])
        print(counts())

        def mobile(spark: SparkSession) -> DataFrame:  # kept, so that a restart can make the source again
            return spark.readStream.schema("user string").text(directory)

        change = live.modify(ms.add_source("mobile", mobile), ms.insert("all", ms.union("mobile"), after="site"))
        print(change.status)
        with open(os.path.join(directory, "views.txt"), "w") as file:
            file.write("bob\nann\n")
        while counts().get("bob") is None:
            live.next_epoch()
        print(counts())


if __name__ == "__main__":
    main(local_session())
