"""State that was migrated: keys are turned into the form of today when they are met, or here, when all are wanted."""

from __future__ import annotations

from collections.abc import Iterator

from midstream.state.entries import NEVER, Form, split_field_entry
from midstream.state.keyed import GroupState
from midstream.state.stores.contract import FIRST, LAST, Reader


def migrated(form: Form, reader: Reader) -> Iterator[tuple[bytes, bytes]]:
    """Walk all entries of a group, with what keys that were not met since a migration would have in today's form."""
    entries = list(reader.scan(FIRST, LAST))
    yield from entries
    older, keys = form.older, set[bytes]()
    while older is not None:
        for entry, _ in entries:
            record = older.key_of_record(entry)
            if record is not None:
                keys.add(record)
            elif older.owns(entry):
                keys.add(split_field_entry(entry)[1])
        older = older.older
    for key in sorted(keys):
        state = GroupState(form, reader, NEVER)
        state.bind(key)
        state.release()
        yield from ((entry, value) for entry, value in sorted(state.changes.items()) if value is not None)
