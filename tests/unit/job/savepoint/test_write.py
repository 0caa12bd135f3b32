"""What a savepoint copies of Spark's own files."""

from __future__ import annotations

from pathlib import Path

from midstream.checkpoint.storage import Storage
from midstream.job.savepoint.write import copy_offsets


def checkpoint(root: Path, names: list[str]) -> Storage:
    """Write Spark's files, each of which says its name."""
    for name in ["metadata", *names]:
        path = root / "spark" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return Storage(str(root))


def test_offsets_of_the_epoch_and_the_one_before_are_copied(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "from", [f"{kind}/{epoch}" for kind in ("offsets", "commits") for epoch in range(9)])
    copied = copy_offsets(source, Storage(str(tmp_path / "to")), 7)
    assert sorted(copied) == ["spark/commits/7", "spark/metadata", "spark/offsets/6", "spark/offsets/7"]


def test_all_that_a_file_source_has_seen_is_copied_though_its_numbers_are_ahead_of_the_epochs(tmp_path: Path) -> None:
    """Where a list of files was written down and the batch never run, Spark's next one has another number."""
    seen = ["sources/1/9.compact", "sources/1/27", "sources/1/28", "sources/1/29.compact"]
    names = [*seen, "sources/0/0", "sources/1/.30.crc", "offsets/26", "offsets/27", "commits/27"]
    target = Storage(str(tmp_path / "to"))
    copied = copy_offsets(checkpoint(tmp_path / "from", names), target, 27)
    assert {name for name in copied if "/sources/" in name} == {f"spark/{name}" for name in [*seen, "sources/0/0"]}
    assert target.read("spark/sources/1/28") == b"sources/1/28"
