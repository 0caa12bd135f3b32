"""Compatibility of plans: what differs between two, and whether one can read the state of the other.

Pure: no pyspark, no files, no clock.
"""

from __future__ import annotations

from typing import Any

import msgspec

from midstream.errors import PlanError
from midstream.plan.plan import (
    AnyOperator,
    KeyedOperator,
    Plan,
    Process,
    Sink,
    Source,
    StateField,
    field_signature,
    gives_errors,
)


class Difference(msgspec.Struct, frozen=True):
    """How one plan differs from another, by operator id."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        parts = [
            f"{word} {', '.join(map(repr, ids))}"
            for word, ids in (("added", self.added), ("removed", self.removed), ("changed", self.changed))
            if ids
        ]
        return "; ".join(parts) or "no difference"


def difference(old: Plan, new: Plan) -> Difference:
    """Work out what changed; slots and the pickled bytes of code do not count."""
    before = {operator.id: _fingerprint(operator) for operator in old.operators}
    after = {operator.id: _fingerprint(operator) for operator in new.operators}
    return Difference(
        added=tuple(id for id in after if id not in before),
        removed=tuple(id for id in before if id not in after),
        changed=tuple(id for id in after if id in before and before[id] != after[id]),
    )


def on_trial(old: Plan, new: Plan) -> frozenset[str]:
    """The operators of a new plan that put rows aside, and are new, or get rows of others that are."""
    guarded = [operator.id for operator in new.operators if gives_errors(operator)]
    if old is new or not guarded:
        return frozenset()
    found = difference(old, new)
    touched = {*found.added, *found.changed}
    return frozenset(id for id in guarded if any(above.id in touched for above in new.upstream(id)))


def check_state_fits(old: Plan, new: Plan) -> None:
    """Refuse a new plan that would read the state of an operator under another key or other types."""
    known = {operator.id: operator for operator in old.of(KeyedOperator)}
    for operator in new.of(KeyedOperator):
        before = known.get(operator.id)
        if before is None:
            continue
        if type(before) is not type(operator) or before.keys != operator.keys:
            raise PlanError(
                f"operator {operator.id!r} has state by {', '.join(before.keys)} of a "
                f"{type(before).__name__.lower()}; the new plan has {type(operator).__name__.lower()} state by "
                f"{', '.join(operator.keys)}. Give the new operator another id, or start a new checkpoint"
            )
        if before.signature != operator.signature and not _is_older_form(before, operator):
            way = "Give ms.replace a migrate= function, give" if isinstance(operator, Process) else "Give"
            raise PlanError(
                f"the state of operator {operator.id!r} is {before.signature}, the new plan declares "
                f"{operator.signature}. {way} the new operator another id, or keep the declared state"
            )
        if isinstance(before, Process) and isinstance(operator, Process):
            _check_shared_fits(before, operator)


def check_partitioning(old: Plan, new: Plan) -> None:
    """Refuse a new plan that would look for the state of an operator in other groups; a savepoint is dealt out anew."""
    known = {operator.id: operator.partition_by for operator in old.of(KeyedOperator)}
    for operator in new.of(KeyedOperator):
        before = known.get(operator.id, operator.partition_by)
        if before != operator.partition_by:
            raise PlanError(
                f"operator {operator.id!r} has its state partitioned by {before or 'its key'}, the new plan partitions "
                f"by {operator.partition_by or 'the key'}. Give the new operator another id, or write a savepoint and "
                "start from it"
            )


def check_groups(old: Plan, new: Plan, before: int, after: int) -> None:
    """Refuse to deal the keys out anew where they share state by group: nobody knows which part is whose."""
    known = {operator.id: operator for operator in old.of(Process)}
    for operator in new.of(Process):
        was = known.get(operator.id)
        kept = {field.name for field in was.shared if field.scope == "group"} if was is not None else set()
        found = [field.name for field in operator.shared if field.name in kept and field.scope == "group"]
        if was is not None and found and (before != after or was.partition_by != operator.partition_by):
            raise PlanError(
                f"the state {found[0]!r} of operator {operator.id!r} is shared by the keys of a group, and cannot be "
                f"split: the savepoint has {before} groups, by {was.partition_by or 'the key'}. Start with the same "
                "groups= and partition_by, or give the operator another id"
            )


def _check_shared_fits(before: Process, operator: Process) -> None:
    """Refuse other types for state that is not of a key: no function can migrate it key by key."""
    known = {field.name: _shared_signature(field) for field in before.shared}
    for field in operator.shared:
        was, now = known.get(field.name), _shared_signature(field)
        if was is not None and was != now:
            raise PlanError(
                f"the state {field.name!r} of operator {operator.id!r} is {was}, the new plan declares {now}. Keep it, "
                "or declare it under another name, where it begins empty"
            )


def _shared_signature(field: StateField) -> str:
    return f"{field_signature(field)}, scope {field.scope}"


def _is_older_form(running: KeyedOperator, operator: KeyedOperator) -> bool:
    """Whether an operator reads a form of the state that the running one knows: one was migrated from the other."""
    if not isinstance(running, Process) or not isinstance(operator, Process):
        return False
    return _form(running) in _forms_before(operator) or _form(operator) in _forms_before(running)


def _form(operator: Process) -> tuple[int, tuple[StateField, ...]]:
    return operator.base, operator.state


def _forms_before(operator: Process) -> list[tuple[int, tuple[StateField, ...]]]:
    found, migration = [], operator.migration
    while migration is not None:
        found.append((migration.base, migration.state))
        migration = migration.before
    return found


def with_sinks_of(plan: Plan, script: Plan) -> Plan:
    """Take the sinks of the script where they are the same: one that was kept has lost its passwords."""
    live = {sink.id: sink for sink in script.of(Sink)}
    operators = []
    for operator in plan.operators:
        same = live.get(operator.id) if isinstance(operator, Sink) else None
        known = same is not None and same == msgspec.structs.replace(operator, code=same.code)
        operators.append(same if same is not None and known else operator)
    return msgspec.structs.replace(plan, operators=tuple(operators))


def inheriting(old: Plan, new: Plan) -> Plan:
    """Let operators of a new plan that declare the state they had read it where it lies, and as it was migrated."""
    known = {operator.id: operator for operator in old.of(Process)}
    operators = []
    for operator in new.operators:
        before = known.get(operator.id)
        if before is not None and isinstance(operator, Process) and _reads_plainly(operator, before):
            operator = msgspec.structs.replace(operator, base=before.base, migration=before.migration)
        operators.append(operator)
    return msgspec.structs.replace(new, operators=tuple(operators))


def asked(operator: KeyedOperator) -> int:
    """Return how many slots the script has asked for."""
    return operator.slots if operator.asked is None else operator.asked


def with_slots_of(old: Plan, script: Plan) -> Plan:
    """Let operators that ask for as many slots as they did keep those that they were rescaled to since."""
    known = {operator.id: operator for operator in old.of(KeyedOperator)}
    operators = []
    for operator in script.operators:
        before = known.get(operator.id)
        if before is not None and isinstance(operator, KeyedOperator) and operator.slots == asked(before):
            kept = {"slots": before.slots, "asked": before.asked, "owners": before.owners}
            operator = msgspec.structs.replace(operator, **kept)
        operators.append(operator)
    return msgspec.structs.replace(script, operators=tuple(operators))


def has_same_slots(one: Plan, other: Plan) -> bool:
    """Whether all keyed operators have as many slots in both plans."""
    first, second = ({o.id: o.slots for o in each.of(KeyedOperator)} for each in (one, other))
    return first == second


def _reads_plainly(operator: Process, before: Process) -> bool:
    is_new = operator.migration is None and operator.base == 0
    return is_new and operator.signature == before.signature


def _fingerprint(operator: AnyOperator) -> Any:
    def strip(plain: Any) -> Any:
        if isinstance(plain, dict):
            if "digest" in plain and "pickled" in plain:
                return plain["digest"]
            return {k: strip(v) for k, v in plain.items() if k not in ("slots", "asked", "owners", "homes")}
        if isinstance(plain, (list, tuple)):
            return [strip(each) for each in plain]
        return plain

    plain = msgspec.to_builtins(operator)
    if isinstance(operator, Process):
        plain["state"] = [repr(field) for field in (*operator.state, *operator.shared)]
        plain["shared"] = ()
        plain["migration"] = repr(operator.migration)
    if isinstance(operator, (Sink, Source)):
        plain.pop("code")  # a sink is known by its description, a source by its id and schema
    return strip(plain)
