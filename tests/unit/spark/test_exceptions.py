"""What an exception out of Spark means to the user, and whether it is worth another try."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from midstream import errors
from midstream.errors import CheckpointError, JobError, MidstreamError, PlanError, SchemaError, SinkError, StateError
from midstream.spark.exceptions import (
    DiskFullError,
    UserCodeError,
    explained,
    has_lost_spark,
    is_final,
    with_free_space,
)


def of_spark(said: str) -> Exception:
    """An exception with the text that Spark makes of what a worker said."""
    return Exception(
        "An error occurred while calling o42.save.\n: org.apache.spark.SparkException: Job aborted due to stage "
        "failure: Task 0 in stage 3.0 failed 4 times, most recent failure:\n"
        f"org.apache.spark.api.python.PythonException: {said}\n"
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)"
        "\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n\nDriver stacktrace:\n\tat org.apache.spark.X\n"
    )


FROM_A_WORKER = of_spark(
    "Traceback (most recent call last):\n"
    '  File "/job/flow.py", line 7, in process\n'
    '    raise ValueError("no thirteens")\n'
    "ValueError: no thirteens\n"
)
FULL = of_spark("java.io.IOException: No space left on device")
UNKNOWN = Exception("something of Spark")


# --- errors of the user's code --------------------------------------------------------------------------------------


def test_an_exception_of_the_users_code_is_shown_with_its_traceback() -> None:
    found = explained(FROM_A_WORKER, " (operator 'sums')")
    assert isinstance(found, UserCodeError)
    assert str(found) == (
        "the job's own code failed: ValueError: no thirteens (operator 'sums')\n"
        "Traceback (most recent call last):\n"
        '  File "/job/flow.py", line 7, in process\n'
        '    raise ValueError("no thirteens")\n'
        "ValueError: no thirteens"
    )


def raised(error: BaseException, cause: BaseException | None = None) -> str:
    """The traceback that Python itself writes of an error."""
    try:
        try:
            raise cause if cause is not None else LookupError("before")
        except BaseException as before:
            raise error from (before if cause is not None else None)
    except BaseException:
        return traceback.format_exc()


class OfTheUserError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("no thirteens"), "ValueError: no thirteens"),
        (KeyError("größe"), "KeyError: 'größe'"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (AssertionError(""), "AssertionError"),
        (RuntimeError("first line\nand more\n  of it"), "RuntimeError: first line"),
        (OfTheUserError("mine"), f"{__name__}.OfTheUserError: mine"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_first_line_names_the_exception_as_python_does(error: Exception, shown: str) -> None:
    found = explained(of_spark(raised(error)))
    assert isinstance(found, UserCodeError)
    assert str(found).splitlines()[0].startswith(f"the job's own code failed: {shown}")


def test_an_exception_that_is_defined_inside_a_function_is_of_the_users_code() -> None:
    class MineError(Exception):
        pass

    try:
        raise MineError("bad")
    except MineError:
        found = explained(of_spark(traceback.format_exc()))
    assert isinstance(found, UserCodeError)
    assert ".<locals>.MineError: bad\n" in str(found).splitlines(keepends=True)[0]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has had groups of exceptions since 3.11")
def test_a_group_of_exceptions_is_of_the_users_code() -> None:
    try:
        raise ExceptionGroup("two of them", [ValueError(1), KeyError(2)])  # noqa: F821  # since 3.11
    except ExceptionGroup:  # noqa: F821
        found = explained(of_spark(traceback.format_exc()))
    assert isinstance(found, UserCodeError)


def test_of_exceptions_that_follow_from_each_other_the_last_counts() -> None:
    found = explained(of_spark(raised(ValueError("at last"), cause=KeyError("at first"))))
    assert str(found).splitlines()[0] == "the job's own code failed: ValueError: at last"
    assert "KeyError" not in str(found)


def test_a_traceback_that_a_slot_has_reported_needs_nothing_after_it() -> None:
    text = raised(ValueError("no thirteens")).rstrip()
    found = explained(Exception(text))
    assert isinstance(found, UserCodeError)
    assert str(found).endswith("ValueError: no thirteens")


# --- errors of ours -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PlanError, SchemaError, StateError, CheckpointError, SinkError, JobError])
def test_an_error_of_ours_out_of_a_worker_is_that_error(kind: type[MidstreamError]) -> None:
    found = explained(of_spark(raised(kind("the table is gone; bring it back"))))
    assert (type(found), str(found)) == (kind, "the table is gone; bring it back")


def test_the_message_of_an_error_of_ours_may_have_several_lines() -> None:
    found = explained(of_spark(raised(StateError("the key\n  17\ndoes not fit"))))
    assert (type(found), str(found)) == (StateError, "the key\n  17\ndoes not fit")
    found = explained(Exception("midstream.errors.StateError: no end"))
    assert (type(found), str(found)) == (StateError, "no end")


@pytest.mark.parametrize("name", ["NoSuchError", "first_line", "__doc__"])
def test_what_only_looks_like_an_error_of_ours_is_not_made_one(name: str) -> None:
    assert not isinstance(getattr(errors, name, None), type)
    found = explained(Exception(f"midstream.errors.{name}: x"))
    assert (type(found), str(found)) == (JobError, f"the epoch failed: midstream.errors.{name}: x")


@pytest.mark.parametrize("error", [CheckpointError("x"), UserCodeError("x"), KeyboardInterrupt(), SystemExit(3)])
def test_what_is_ours_already_and_what_is_no_exception_stays(error: BaseException) -> None:
    assert explained(error) is error


# --- others ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UNKNOWN, "something of Spark"),
        (Exception("  \nasks for memory\n "), "asks for memory"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("Traceback (most recent call last):"), "Traceback (most recent call last):"),
    ],
)
def test_what_nobody_knows_is_said_as_it_is(error: Exception, said: str) -> None:
    found = explained(error)
    assert (type(found), str(found)) == (JobError, f"the epoch failed: {said}")


# --- a full disk ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["No space left on device", "Disk quota exceeded"])
def test_a_full_disk_is_named(tmp_path: Path, sign: str) -> None:
    error = Exception(f"Job aborted.\nCaused by: java.io.IOException: {sign}: /data/out\n\tat java")
    found = with_free_space(
        explained(error), {"checkpoint": str(tmp_path), "cache": "/no/such/directory", "Spark": "s3://elsewhere"}
    )
    assert isinstance(found, DiskFullError)
    assert f"(Caused by: java.io.IOException: {sign}: /data/out)" in str(found)
    assert f"Free on this host: checkpoint ({tmp_path})" in str(found)
    assert "/no/such/directory" not in str(found)
    assert "s3://" not in str(found)


def test_a_full_disk_in_the_users_code_is_a_full_disk() -> None:
    found = explained(of_spark(raised(OSError(28, "No space left on device"))))
    assert isinstance(found, DiskFullError)


def test_where_the_least_is_free_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {name: str(tmp_path / name) for name in ("roomy", "tight", "gone", "middling")}
    free = {places["roomy"]: 900 << 20, places["tight"]: 3 << 20, places["middling"]: 40 << 20}
    for path in free:
        Path(path).mkdir()
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free[path]))
    shown = str(with_free_space(DiskFullError("full"), places)).removeprefix("full. Free on this host: ")
    assert shown == (
        f"tight ({places['tight']}) 3 MB, middling ({places['middling']}) 40 MB, roomy ({places['roomy']}) 900 MB"
    )


def test_of_other_errors_free_space_says_nothing(tmp_path: Path) -> None:
    other = JobError("x")
    assert with_free_space(other, {"checkpoint": str(tmp_path)}) is other


# --- another try ----------------------------------------------------------------------------------------------------

ONE_TRY = ["local", "local[1]", "local[8]", "local[*]"]
RETRIED = [
    "local[2,4]",
    "local[*,4]",
    "local-cluster[2,1,1024]",
    "spark://host:7077",
    "yarn",
    "k8s://https://host:6443",
]


@pytest.mark.parametrize("master", [*ONE_TRY, *RETRIED])
@pytest.mark.parametrize("kind", [SchemaError, StateError, CheckpointError, PlanError, SinkError, DiskFullError])
def test_what_midstream_has_diagnosed_is_final(kind: type[MidstreamError], master: str) -> None:
    assert is_final(kind("x"), master)


@pytest.mark.parametrize("error", [of_spark(raised(SchemaError("x"))), FULL], ids=["schema", "full"])
def test_what_midstream_has_diagnosed_in_a_worker_is_final(error: Exception) -> None:
    assert [is_final(error, master) for master in (*ONE_TRY, *RETRIED)] == [True] * (len(ONE_TRY) + len(RETRIED))


def test_an_exception_of_the_users_code_is_final_where_spark_has_tried_the_task_again() -> None:
    assert [is_final(FROM_A_WORKER, master) for master in ONE_TRY] == [False] * len(ONE_TRY)
    assert [is_final(FROM_A_WORKER, master) for master in RETRIED] == [True] * len(RETRIED)


def test_what_a_slot_has_reported_was_not_tried_again() -> None:
    reported = UserCodeError("the job's own code failed: ValueError: no thirteens")
    assert not [master for master in (*ONE_TRY, *RETRIED) if is_final(reported, master)]


@pytest.mark.parametrize("error", [UNKNOWN, JobError("x"), TimeoutError(), KeyboardInterrupt()], ids=repr)
def test_what_nobody_knows_is_worth_another_try(error: BaseException) -> None:
    assert not [master for master in (*ONE_TRY, *RETRIED) if is_final(error, master)]


# --- a Spark that is gone -------------------------------------------------------------------------------------------


def session(is_stopped: Any) -> Any:
    """What is asked of a session, answered as a live one, a stopped one or a dead one does."""

    def stopped() -> bool:
        if isinstance(is_stopped, Exception):
            raise is_stopped
        return bool(is_stopped)

    java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=stopped))
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=java))


def test_a_spark_that_runs_is_not_lost() -> None:
    assert has_lost_spark(session(False)) is False


@pytest.mark.parametrize(
    "answer", [True, Py4JError("x"), Py4JNetworkError("x"), ConnectionRefusedError(), BrokenPipeError()], ids=repr
)
def test_a_spark_that_has_stopped_or_does_not_answer_is_lost(answer: Any) -> None:
    assert has_lost_spark(session(answer)) is True


def test_a_context_that_was_stopped_has_no_handle() -> None:
    gone: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    assert has_lost_spark(gone) is True
