"""The contract of a node of a plan, as plain data: what code that changes, compares or stores plans asks of it.

A node may come from another package, and answers for itself, so that code needs no list of kinds. Pure: no pyspark, no
files, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from midstream.errors import PlanError
from midstream.plan.code import Code

if TYPE_CHECKING:
    from typing_extensions import Self

DEAD_LETTER = "dead_letter"  # the `on_error` that puts rows aside
KEY, GROUP, BROADCAST = "key", "group", "broadcast"  # whose state it is; that of `BROADCAST` is equal in all groups


class StateField(msgspec.Struct, frozen=True, kw_only=True):
    """One declared piece of state of a keyed operator."""

    name: str
    kind: str  # value | list | map | accumulator
    type: str  # DDL
    key_type: str = ""  # of a map
    default: Any = None
    ttl: int = 0  # microseconds, 0: for ever
    scope: str = "key"  # key | group | broadcast


def field_signature(field: StateField) -> str:
    """Return the stored form of a declared piece of state."""
    kind = "value with ttl" if field.kind == "value" and field.ttl else field.kind  # it is stored with its expiry
    return " ".join(filter(None, (f"{field.name}:", kind, field.key_type, field.type)))


class Operator(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """A node of the plan, with its user-given id; it answers what a change of the plan asks of its kind."""

    id: str
    inputs: tuple[str, ...] = ()

    stands_alone: ClassVar[bool] = True  # it may be passed to a change as it is, and not only as a part of others
    is_replaceable: ClassVar[bool] = True  # another may replace it
    is_optional_reader: ClassVar[bool] = False  # it goes on without one of its inputs
    belongs_to_input: ClassVar[bool] = False  # nothing comes between it and what it reads

    @property
    def kind_name(self) -> str:
        """The name of its kind, as plan files have it."""
        return str(self.__struct_config__.tag)

    @property
    def described(self) -> str:
        """Its kind, and what else people want to see."""
        return self.kind_name

    @property
    def streams(self) -> tuple[str, ...]:
        """The inputs whose rows it takes; what is broadcast to it does not count."""
        return self.inputs

    @property
    def brought(self) -> tuple[str, ...]:
        """Before it is in a plan: what it reads besides the stream that it will read."""
        return ()

    @property
    def codes(self) -> tuple[Code, ...]:
        """All code in it: by default its `code`, if it has one."""
        code: Code | None = getattr(self, "code", None)
        return () if code is None else (code,)

    @property
    def may_fail(self) -> bool:
        """Whether it has an `on_error`, for rows that its function fails on."""
        return "on_error" in self.__struct_fields__

    @property
    def gives_errors(self) -> bool:
        """Whether rows that its function fails on are put aside."""
        return self.may_fail and getattr(self, "on_error", "") == DEAD_LETTER

    def compared(self) -> dict[str, Any]:
        """Return what makes it another operator when it changes, as plain data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]

    def with_fields(self, convert: Callable[[StateField], StateField]) -> Self:
        """Return it with all its declared state converted."""
        return self

    def migrated(self, before: Operator, code: Code) -> Self:
        """Return it with the state of another, which code converts to its own form."""
        raise PlanError(f"{before.id!r}: only the state of a KeyedFunction can be migrated, to that of another one")

    def inheriting(self, before: Operator) -> Self:
        """Return it with the state of an operator of its id as that was migrated, if it declares the same."""
        return self

    def placed(self, top: int) -> Self:
        """Return it with room for migrated state: numbers below `top` have been used."""
        return self


class KeyedOperator(Operator, frozen=True, kw_only=True):
    """An operator with state: its rows have a key, and its groups have slots."""

    keys: tuple[str, ...]
    partition_by: str = ""  # SQL over the key: keys for which it is equal are in one group; "": the key itself
    slots: int = 0  # 0: as many as the cluster has cores
    asked: int | None = None  # slots that the script asks for, where the operator was rescaled since
    owners: tuple[int, ...] = ()  # group -> slot, on one host; none: assigned in turn
    homes: tuple[str, ...] = ()  # group -> executor, on a cluster; none: spread evenly

    is_migratable: ClassVar[bool] = False  # a function can convert its state to another form

    @property
    def signature(self) -> str:
        """The stored form of the state: two operators of one signature can read each other's."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its state is")

    @property
    def described(self) -> str:
        """The key."""
        return f"{self.kind_name} by {', '.join(self.keys)}" if self.keys else self.kind_name

    @property
    def group_state(self) -> tuple[StateField, ...]:
        """State that belongs to groups, and not to keys."""
        return ()

    @property
    def forms(self) -> tuple[tuple[int, tuple[StateField, ...]], ...]:
        """The forms that its state is known to have had, the newest first: where each begins, and its fields."""
        return ()


_NODES: dict[str, type[Operator]] = {}  # tag -> the node that plan files hold under it


def register_node(node: type[Operator]) -> None:
    """Let plans hold a node, also one that is defined elsewhere; its tag must be unique and never change."""
    tag = str(node.__struct_config__.tag)
    if _NODES.setdefault(tag, node).__qualname__ != node.__qualname__:
        raise PlanError(f"the tag {tag!r} of {node.__name__} is taken by {_NODES[tag].__name__}")
    _NODES[tag] = node


def node_of(tag: str) -> type[Operator]:
    """Return the node of a tag."""
    if tag not in _NODES:
        raise PlanError(
            f"the plan has an operator of kind {tag!r}, which is not registered: import the package that defines "
            "it before you start the job"
        )
    return _NODES[tag]
