"""What all sinks share: secrets that are neither shown nor kept, configurations as text, and histories told apart."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream import sinks
from midstream.checkpoint.records import Delivered, Staged
from midstream.errors import SinkError
from midstream.sinks.contract import (
    LostRowsError,
    OtherHistoryError,
    Secret,
    Sink,
    call,
    hide_secrets,
    refuse_other_history,
    reveal_secrets,
)

# --- secrets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def test_a_secret_is_neither_shown_nor_pickled(kept: Any):
    secret = Secret("needle")
    assert "needle" not in f"{secret!r} {secret} {[secret]}"
    assert b"needle" not in kept.dumps({"password": secret})
    lost = kept.loads(kept.dumps(secret))
    assert (bool(secret), bool(lost), lost.value) == (True, False, "")


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "PASSWORD",
        "fs.s3a.secret.key",
        "AWS_SESSION_TOKEN",
        "account_key",
        "credentials",
        "sas_url",
        "passwd",
    ],
)
def test_options_are_secret_by_their_names(name: str):
    assert isinstance(hide_secrets({name: "needle"})[name], Secret)


@pytest.mark.parametrize("name", ["region", "compression", "header", "maxRecordsPerFile", "endpoint"])
def test_other_options_are_plain(name: str):
    assert hide_secrets({name: "shown"}) == {name: "shown"}


NAMES = st.sampled_from(["region", "secret", "token", "header", "password"])


@given(st.dictionaries(NAMES, st.text()))
def test_what_is_hidden_is_revealed_for_use_but_not_what_was_lost_to_a_pickle(options: dict[str, str]):
    hidden = hide_secrets(options)
    secret = {"secret", "token", "password"}
    assert reveal_secrets(hidden) == {name: text for name, text in options.items() if text or name not in secret}
    lost = pickle.loads(pickle.dumps(hidden))
    assert reveal_secrets(lost) == {name: text for name, text in options.items() if name not in secret}


# --- configurations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (call("noop"), "noop()"),
        (call("memory", "totals"), "memory('totals')"),
        (call("f", 1, b=2, a="x"), "f(1, a='x', b=2)"),
        (call("f", a=None, b=(), c={}, d=False, e=0, f=""), "f(d=False, e=0, f='')"),
        (call("f", o={"b": "2", "a": "1", "key": Secret("needle")}), "f(o={'a': '1', 'b': '2'})"),
        (call("f", o={"key": Secret("needle")}), "f()"),
    ],
)
def test_a_configuration_is_the_call_that_makes_it_without_secrets(text: str, shown: str):
    assert text == shown


@pytest.mark.parametrize(
    ("sink", "shown"),
    [
        (sinks.memory("totals"), "memory('totals')"),
        (sinks.memory(), "memory()"),
        (sinks.console(), "console(rows=20)"),
        (sinks.noop(), "noop()"),
        (sinks.files("/out", header=True), "files('/out', format='parquet', options={'header': 'true'})"),
        (
            sinks.files("/out", "csv", partition_by=["day"], sep=";"),
            "files('/out', format='csv', options={'sep': ';'}, partition_by=('day',))",
        ),
    ],
    ids=repr,
)
def test_a_sink_is_shown_and_known_by_its_configuration_also_as_a_copy(sink: Sink, shown: str):
    assert (sink.describe(), repr(sink)) == (shown, shown)
    assert cloudpickle.loads(cloudpickle.dumps(sink)).describe() == shown
    assert sink.guarantee


def test_a_sink_that_says_that_it_remembers_must_do_so():
    class Forgetful(type(sinks.noop())):  # type: ignore[misc]
        remembers = True

    with pytest.raises(NotImplementedError, match=r"Forgetful says that it remembers, but has no published\(\)"):
        Forgetful().published("out", "job")


# --- histories ------------------------------------------------------------------------------------------------------

STAGED = Staged("out", "job", 7, "/spool", ("part-0",), commit="c7")


@pytest.mark.parametrize("found", [Delivered(7, "c7"), Delivered(7, "")])
def test_the_epoch_that_the_sink_has_is_this_one(found: Delivered):
    refuse_other_history("out", "the table", found, STAGED)


@pytest.mark.parametrize("found", [Delivered(7, "other"), Delivered(8, "c8"), Delivered(8, ""), Delivered(9, "c7")])
def test_an_epoch_of_another_history_or_a_later_one_is_refused_with_both(found: Delivered):
    said = f"sink 'out' cannot publish epoch 7 .commit c7.: the table has epoch {found.epoch} of commit "
    with pytest.raises(OtherHistoryError, match=said + (found.commit or "unknown")) as refused:
        refuse_other_history("out", "the table", found, copy.copy(STAGED))
    assert isinstance(refused.value, SinkError)
    assert not isinstance(refused.value, LostRowsError)
