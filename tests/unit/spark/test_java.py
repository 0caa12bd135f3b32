"""Java is looked for where Spark would look, and asked for in words that help."""

from __future__ import annotations

from pathlib import Path

import pytest

from midstream.errors import MidstreamError
from midstream.spark.java import MissingJavaError, require_java


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """Give a program `bin/java` in a directory of its own."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def test_java_home_is_enough(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    monkeypatch.setenv("PATH", "")
    require_java()


def test_so_is_the_path(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java.parent))
    require_java()
    monkeypatch.setenv("JAVA_HOME", "")
    require_java()


def test_a_java_home_that_has_none_is_named_though_there_is_one_on_the_path(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PATH", str(java.parent))
    with pytest.raises(MissingJavaError, match=r"Java 17 or newer: JAVA_HOME is .*/elsewhere, which has no bin/java"):
        require_java()


def test_without_any_it_is_said_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MidstreamError, match=r"no java on the PATH\. Install it, for example with 'apt-get install"):
        require_java()
