"""Compatibility of plans: what differs between two, and whether one can read the state of the other.

Pure: no pyspark, no files, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from midstream.errors import PlanError
from midstream.plan.plan import GROUP, AnyOperator, KeyedOperator, Plan, Sink, StateField, field_signature


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
    """Return what changed; slots and the pickled bytes of code do not count."""
    before = {operator.id: _fingerprint(operator) for operator in old.operators}
    after = {operator.id: _fingerprint(operator) for operator in new.operators}
    return Difference(
        added=tuple(id for id in after if id not in before),
        removed=tuple(id for id in before if id not in after),
        changed=tuple(id for id in after if id in before and before[id] != after[id]),
    )


def on_trial(old: Plan, new: Plan) -> frozenset[str]:
    """The operators of a new plan that put rows aside, and are new, or get rows of others that are."""
    guarded = [operator.id for operator in new.operators if operator.gives_errors]
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
            way = "Give ms.replace a migrate= function, give" if operator.is_migratable else "Give"
            raise PlanError(
                f"the state of operator {operator.id!r} is {before.signature}, the new plan declares "
                f"{operator.signature}. {way} the new operator another id, or keep the declared state"
            )
        _check_shared_fits(before, operator)


def check_partitioning(old: Plan, new: Plan) -> None:
    """Refuse a new plan that would look for the state of an operator in other groups; savepoints are spread again."""
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
    """Refuse to spread keys again where they share state by group: nothing says which part belongs to which key."""
    known = {operator.id: operator for operator in old.of(KeyedOperator)}
    for operator in new.of(KeyedOperator):
        was = known.get(operator.id)
        kept = {field.name for field in was.group_state if field.scope == GROUP} if was is not None else set()
        found = [field.name for field in operator.group_state if field.name in kept and field.scope == GROUP]
        if was is not None and found and (before != after or was.partition_by != operator.partition_by):
            raise PlanError(
                f"the state {found[0]!r} of operator {operator.id!r} is shared by the keys of a group, and cannot be "
                f"split: the savepoint has {before} groups, by {was.partition_by or 'the key'}. Start with the same "
                "groups= and partition_by, or give the operator another id"
            )


def _check_shared_fits(before: KeyedOperator, operator: KeyedOperator) -> None:
    """Refuse other types for state that does not belong to a key: no function can migrate it key by key."""
    known = {field.name: _shared_signature(field) for field in before.group_state}
    for field in operator.group_state:
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
    one, other = running.forms, operator.forms
    return any(form in other[1:] for form in one[:1]) or any(form in one[1:] for form in other[:1])


def with_sinks_of(plan: Plan, script: Plan) -> Plan:
    """Use the sinks of the script where they are the same: a stored one has lost its passwords."""
    live = {sink.id: sink for sink in script.of(Sink)}
    operators = []
    for operator in plan.operators:
        same = live.get(operator.id) if isinstance(operator, Sink) else None
        known = same is not None and same == msgspec.structs.replace(operator, code=same.code)
        operators.append(same if same is not None and known else operator)
    return msgspec.structs.replace(plan, operators=tuple(operators))


def inheriting(old: Plan, new: Plan) -> Plan:
    """Let operators of a new plan that declare the same state read it where it is, and as it was migrated."""
    known = {operator.id: operator for operator in old.operators}
    operators = (o.inheriting(known[o.id]) if o.id in known else o for o in new.operators)
    return msgspec.structs.replace(new, operators=tuple(operators))


def asked(operator: KeyedOperator) -> int:
    """Return how many slots the script has asked for."""
    return operator.slots if operator.asked is None else operator.asked


def with_slots_of(old: Plan, script: Plan) -> Plan:
    """Let operators that ask for as many slots as before keep the number that they were rescaled to since."""
    return _with_slots(script, {o.id: o for o in old.of(KeyedOperator) if _slots_in(script, o.id) == asked(o)})


def with_all_slots_of(old: Plan, script: Plan) -> Plan:
    """Let operators keep the number of slots that they have, whatever the script asks for."""
    return _with_slots(script, {operator.id: operator for operator in old.of(KeyedOperator)})


def _with_slots(script: Plan, kept: Mapping[str, KeyedOperator]) -> Plan:
    operators = []
    for operator in script.operators:
        if isinstance(operator, KeyedOperator) and operator.id in kept:
            before = kept[operator.id]
            operator = msgspec.structs.replace(operator, slots=before.slots, asked=before.asked, owners=before.owners)
        operators.append(operator)
    return msgspec.structs.replace(script, operators=tuple(operators))


def _slots_in(plan: Plan, id: str) -> int | None:
    return next((operator.slots for operator in plan.of(KeyedOperator) if operator.id == id), None)


def has_same_slots(one: Plan, other: Plan) -> bool:
    """Whether all keyed operators have as many slots in both plans."""
    first, second = ({o.id: o.slots for o in each.of(KeyedOperator)} for each in (one, other))
    return first == second


def _fingerprint(operator: AnyOperator) -> Any:
    def strip(plain: Any) -> Any:
        if isinstance(plain, dict):
            if "digest" in plain and "pickled" in plain:
                return plain["digest"]
            return {k: strip(v) for k, v in plain.items() if k not in ("slots", "asked", "owners", "homes")}
        if isinstance(plain, (list, tuple)):
            return [strip(each) for each in plain]
        return plain

    return strip(operator.compared())
