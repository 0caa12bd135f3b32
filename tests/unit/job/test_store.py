"""The store of a job: checked before it starts, where it runs and against its checkpoint."""

from __future__ import annotations

import msgspec
import pytest

from midstream.checkpoint.records import FORMAT, Identity
from midstream.errors import CheckpointError, PlanError
from midstream.job.start import Options
from midstream.job.store import ImportTask, check_kept
from midstream.state.stores.lmdb_kind import LmdbKind

WHOLE = "tests.outside.whole:Whole"


def identity(store: str) -> Identity:
    return Identity(format=FORMAT, job="job", groups=8, store=store)


def test_a_store_that_is_none_is_refused_before_anything_is_started():
    with pytest.raises(PlanError, match="there is no store 'rocksdb'"):
        Options(store="rocksdb")


def test_tasks_are_told_which_store_they_have():
    assert Options(cache="there").settings(on_cluster=False, once=False).store == "lmdb"
    assert Options(cache="there", store=WHOLE).settings(on_cluster=False, once=False).store == WHOLE


def test_a_task_says_why_it_cannot_import_a_store():
    def why(store: str) -> list[str]:
        return [why for batch in ImportTask(store)(iter(())) for why in batch.column("why").to_pylist()]

    assert why(WHOLE) == [""]
    assert "the store 'no.such:Store' cannot be imported" in why("no.such:Store")[0]


def test_a_checkpoint_that_does_not_say_its_store_is_one_of_lmdb():
    before = msgspec.json.decode(b'{"format": 5, "job": "job", "groups": 8}', type=Identity)
    assert before.store == LmdbKind.format


def test_a_checkpoint_is_of_one_kind_of_store_for_its_life():
    check_kept(identity("mdb"), "there", "lmdb")
    check_kept(identity("whole"), "there", WHOLE)
    for kept, store in (("mdb", WHOLE), ("whole", "lmdb")):
        with pytest.raises(CheckpointError, match=f"keeps its state in a store of the format '{kept}'") as refused:
            check_kept(identity(kept), "there", store)
        assert "write a savepoint, and start from that" in str(refused.value)
