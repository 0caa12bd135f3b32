"""What a session is told, and what is held back of what Java says. Sessions themselves are tested in tests/spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from midstream.errors import PlanError
from midstream.spark.session import held_back, s3_settings

NAMES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION")
S3 = "spark.hadoop.fs.s3a."


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the home of a Spark with Hadoop 3.4.9, and an environment that says nothing of S3."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "hadoop-client-api-3.4.9.jar").touch()
    (tmp_path / "jars" / "hadoop-client-runtime-9.9.9.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


CONNECTOR = {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.4.9"}


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({}, {}),
        ({"AWS_REGION": "eu-central-1"}, {"endpoint.region": "eu-central-1"}),
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, {"endpoint.region": "eu-west-1"}),
        ({"AWS_REGION": "eu-central-1", "AWS_DEFAULT_REGION": "eu-west-1"}, {"endpoint.region": "eu-central-1"}),
        (
            {"AWS_ENDPOINT_URL": "http://localhost:9000"},
            {
                "endpoint": "http://localhost:9000",
                "path.style.access": "true",
                "connection.ssl.enabled": "false",
            },
        ),
        (
            {"AWS_ENDPOINT_URL": "http://other", "AWS_ENDPOINT_URL_S3": "https://store"},
            {"endpoint": "https://store", "path.style.access": "true", "connection.ssl.enabled": "true"},
        ),
    ],
)
def test_spark_is_led_to_the_store_that_the_environment_names(
    home: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], settings: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert s3_settings() == CONNECTOR | {S3 + name: value for name, value in settings.items()}


def test_no_credentials_are_in_the_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "needle")
    assert "needle" not in str(s3_settings())


def test_a_spark_without_hadoop_is_said(home: Path) -> None:
    (home / "jars" / "hadoop-client-api-3.4.9.jar").unlink()
    with pytest.raises(PlanError, match=f"there is no hadoop-client-api in {home}/jars; name the connector"):
        s3_settings()


def test_the_spark_that_is_installed_has_its_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    package = s3_settings()["spark.jars.packages"]
    assert package.rpartition(":")[2].split(".")[0] == "3"


# --- what is held back ----------------------------------------------------------------------------------------------


def starting(*said: str) -> Any:
    """A start of Spark: another process says something, then and later."""

    def start() -> subprocess.Popen[str]:
        script = "import sys\nfor line in sys.stdin:\n    sys.stderr.write(line)\n    sys.stderr.flush()"
        java = subprocess.Popen([sys.executable, "-S", "-c", script], stdin=subprocess.PIPE, text=True)
        tell(java, *said)
        return java

    return start


def tell(java: subprocess.Popen[str], *said: str) -> None:
    assert java.stdin is not None
    java.stdin.writelines(f"{line}\n" for line in said)
    java.stdin.flush()


def end(java: subprocess.Popen[str]) -> None:
    assert java.stdin is not None
    java.stdin.close()
    assert java.wait() == 0


def test_what_java_says_is_not_shown_where_all_goes_well(capfd: pytest.CaptureFixture[str]) -> None:
    with held_back(starting("WARN at the start")) as java:
        tell(java, "WARN later")
        end(java)
        os.write(2, b"our own\n")
        sys.stderr.write("ours too\n")
    assert capfd.readouterr().err == "our own\nours too\n"


def test_it_is_shown_when_something_goes_wrong(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with held_back(starting("WARN at the start")) as java:
            tell(java, "ERROR later")
            end(java)
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fail()
    assert capfd.readouterr().err == "WARN at the start\nERROR later\n"


def test_so_it_is_when_spark_does_not_start(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> Any:
        end(starting("no memory")())
        raise RuntimeError("gateway exited")

    with pytest.raises(RuntimeError, match="gateway exited"), held_back(fail):
        raise AssertionError("it did not start")
    assert capfd.readouterr().err == "no memory\n"


def test_an_error_in_a_flow_says_itself_what_is_wrong(capfd: pytest.CaptureFixture[str]) -> None:
    def refuse() -> None:
        with held_back(starting("WARN at the start")) as java:
            end(java)
            raise PlanError("no source")

    with pytest.raises(PlanError, match="no source"):
        refuse()
    assert capfd.readouterr().err == ""
