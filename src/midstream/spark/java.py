"""Finding Java before Spark fails to: Spark's own message does not say what to do."""

from __future__ import annotations

import os
import shutil

from midstream.errors import MidstreamError


class MissingJavaError(MidstreamError):
    """Java is not installed."""


def require_java() -> None:
    """Refuse to go on without Java."""
    home = os.environ.get("JAVA_HOME")
    found = os.path.exists(os.path.join(home, "bin", "java")) if home else shutil.which("java")
    if not found:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java on the PATH"
        raise MissingJavaError(
            f"Spark needs Java 17 or newer: {where}. Install it, for example with 'apt-get install "
            "openjdk-17-jre-headless', 'dnf install java-17-openjdk-headless' or 'brew install openjdk@17'; "
            "'make demo' in a checkout of Midstream does so"
        )
