"""Everything that a piece of user code reaches, and its digest.

What is reached is a graph: functions with their closures, defaults and globals, the classes of objects with their bases
and attributes, values down to the last number. Code of the user, that is of modules which are not installed, counts
with its text; installed code counts by its name. The digest is equal where the graphs do the same, whatever the order
of sets, dictionaries and attributes: nodes are distinguished by their label and by what they point to, round by round.
"""

from __future__ import annotations

import collections
import enum
import functools
import importlib.util
import sys
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Any, TypeGuard

from midstream.plan import code_text
from midstream.plan.code_owners import (
    CARRIERS,
    is_by_name,
    is_installed,
    is_of_driver,
    is_udf,
    is_users,
    qualified,
    reduction,
    udf_of,
)

_Child = int | bytes  # a node, or the hash of a plain value
_PLAIN = {type(None), bool, int, float, complex, str, bytes, bytearray, type(...), type(NotImplemented)}
_DYNAMIC = {"globals", "eval", "exec", "__import__", "import_module"}  # what they find cannot be known here
# Of a class: what Python adds, caches, or says about where it is defined.
_ADDED = {"__dict__", "__weakref__", "__module__", "__qualname__", "__firstlineno__", "__static_attributes__"}
_ADDED |= {"__annotate__", "__annotate_func__", "__annotations_cache__", "_abc_impl", "__abstractmethods__"}
_ADDED |= {"__slotnames__"}
# Of a dataclass, a named tuple or an enum: what `_made_of` has already.
_SAID = {"__dataclass_fields__", "__dataclass_params__", "_fields", "_field_defaults"}
_OPTIONS = ("init", "repr", "eq", "order", "unsafe_hash", "frozen")  # of a dataclass, in all versions of Python
_MAKERS = {"collections", "dataclasses", "enum", "reprlib", "typing"}
_FIELD = ("default", "default_factory", "init", "repr", "hash", "compare", "metadata", "kw_only", "type")


@dataclass(slots=True)
class _Node:
    label: str = ""
    ordered: list[_Child] = field(default_factory=list)
    unordered: list[tuple[_Child, ...]] = field(default_factory=list)
    is_opaque: bool = False  # cannot be pickled, and counts by its type alone
    is_object: bool = False  # of an installed class
    is_container: bool = False


class Reach:
    """What is reached from one piece of code."""

    def __init__(self, root: Any) -> None:
        """Walk all of it."""
        self.imports: set[str] = set()  # the user's modules that functions import when they are called
        self.used: dict[int, set[str]] = {}  # id of a module of the user's -> the attributes that are used
        self._modules: dict[int, types.ModuleType] = {}
        self._open: set[int] = set()  # modules that are passed on: their attributes are used under any known word
        self._words: set[str] = set()
        self._nodes: list[_Node] = []
        self._at: dict[int, int] = {}
        self._held: list[Any] = []  # the id of a deleted object would be used again
        self._root = self._child(root)
        done = 0
        while done < len(self._held) or self._extend():
            value, node = self._held[done], self._nodes[done]
            done += 1
            self._fill(node, value)

    def digest(self) -> str:
        """Return 32 characters that differ where what is reached does."""
        if isinstance(self._root, bytes):
            return self._root.hex()
        self._spread_opacity()
        labels = [_hash(node.label.encode(errors="surrogatepass")) for node in self._nodes]
        colours = labels
        while True:

            def colour(child: _Child, known: list[bytes] = colours) -> bytes:
                return child if isinstance(child, bytes) else known[child]

            finer = [
                _hash(
                    label,
                    *map(colour, node.ordered),
                    b"|",
                    *sorted(b"".join(map(colour, group)) for group in node.unordered),
                )
                for label, node in zip(labels, self._nodes, strict=True)
            ]
            if len(set(finer)) == len(set(colours)):  # no more are distinguished
                return _hash(finer[self._root], *sorted(set(finer))).hex()
            colours = finer

    def _child(self, value: Any) -> _Child:
        kind = type(value)
        if kind in (bytes, bytearray):
            return _hash(f"{kind.__name__} ".encode(), value)
        if kind in _PLAIN:
            return _hash(_shown(value).encode(errors="surrogatepass"))
        if kind in (tuple, list) and all(type(each) in _PLAIN for each in value):  # tables may be large
            return _hash(f"{kind.__name__} [{','.join(map(_shown, value))}]".encode(errors="surrogatepass"))
        return self._use(value, ()) if _is_users_module(value) else self._node(value)

    def _node(self, value: Any) -> int:
        if id(value) not in self._at:
            self._at[id(value)] = len(self._nodes)
            self._nodes.append(_Node())
            self._held.append(value)
        return self._at[id(value)]

    def _pairs(self, items: Iterable[tuple[Any, Any]]) -> list[tuple[_Child, ...]]:
        return [(self._child(key), self._child(value)) for key, value in items]

    def _fill(self, node: _Node, value: Any) -> None:
        kind = type(value)
        node.label = kind.__name__
        node.is_container = kind in (tuple, list, dict, set, frozenset)
        if kind in (tuple, list):
            node.ordered = [self._child(each) for each in value]
        elif kind in (dict, types.MappingProxyType):
            node.unordered = self._pairs(list(value.items()))  # at once: another thread may change it
        elif isinstance(value, (set, frozenset)):
            node.ordered = [self._child(kind)]
            node.unordered = [(self._child(each),) for each in list(value)]
        elif isinstance(value, types.CellType):
            node.ordered = [self._child(value.cell_contents)] if _is_bound(value) else []
        elif isinstance(value, types.CodeType):
            node.label = code_text.text(value)
        elif isinstance(value, types.ModuleType):
            node.label = "module" if is_users(value) else f"installed module {value.__name__}"
        elif isinstance(value, (types.FunctionType, type, functools._lru_cache_wrapper)) and is_by_name(value):
            node.label = f"{kind.__name__} {qualified(value)}"
        elif isinstance(value, types.FunctionType):
            self._function(node, value)
        elif isinstance(value, type):
            self._class(node, value)
        elif isinstance(value, enum.Enum):
            node.ordered = [self._child(part) for part in (kind, value._name_, value._value_)]
        elif isinstance(value, typing.TypeVar):
            node.ordered = [self._child(part) for part in (value.__name__, value.__bound__, value.__constraints__)]
        elif isinstance(value, functools._lru_cache_wrapper):
            node.ordered = [self._child(value.cache_parameters()), self._child(value.__wrapped__)]
        elif isinstance(value, functools.cached_property):
            node.ordered = [self._child(kind), self._child(value.func)]
        elif is_of_driver(value):
            node.label, node.is_opaque = qualified(kind), True
            node.ordered = [self._child(_known_of(value))]
        else:
            self._object(node, value)

    def _function(self, node: _Node, function: types.FunctionType) -> None:
        if (udf := udf_of(function)) is not None:
            node.label, node.ordered = "udf", [self._child(udf)]
            return
        node.label = f"function {code_text.text(function.__code__)}"
        annotations = _annotations(function)
        values = (function.__defaults__, function.__kwdefaults__, function.__dict__, annotations)
        node.ordered = [self._child(value) for value in values]
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        uses = code_text.uses(function.__code__)
        self._words |= uses.words
        for name, *attributes in uses.paths:
            if name in cells:
                value = cells[name].cell_contents if _is_bound(cells[name]) else cells[name]
            elif name in function.__globals__:
                value = function.__globals__[name]
            else:
                continue  # built in, or a variable of the function
            child = self._use(value, attributes) if _is_users_module(value) else self._child(value)
            node.unordered.append((self._child(name), child))
        for name, level, names in uses.imports:
            self._import(node, function, name, level, names)
        if uses.words & _DYNAMIC:
            node.ordered.append(self._child(code_text.file_text(function.__code__.co_filename)))

    def _import(self, node: _Node, function: types.FunctionType, name: str, level: int, names: tuple[str, ...]) -> None:
        """An import inside a function: of the user's modules it counts, and is remembered."""
        package = function.__globals__.get("__package__") or ""
        full = importlib.util.resolve_name("." * level + name, package) if level and package else name
        module = sys.modules.get(full)
        if module is None:
            if _is_found_among_users(full):
                self.imports.add(full)
        elif is_users(module):
            self.imports.add(full)
            for attributes in [[each] for each in names] or [[]]:
                self._use(module, attributes)
            node.unordered.append((self._child(full), self._module(module)))

    def _class(self, node: _Node, cls: type) -> None:
        node.label = f"class {cls.__name__}"
        node.ordered = [self._child(cls.__bases__), self._child(type(cls))]
        made_of = _made_of(cls)
        node.ordered.append(self._child(made_of))
        for name, value in list(vars(cls).items()):
            if name in _ADDED or isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                continue
            if made_of and (name in _SAID or _is_made(cls, name, value)):
                continue
            node.unordered.append((self._child(name), self._child(value)))

    def _object(self, node: _Node, value: Any) -> None:
        """Any other object: what pickle would make of it."""
        cls = type(value)
        is_installed = is_by_name(cls)
        node.label = qualified(cls) if is_installed else cls.__name__
        node.is_container = isinstance(value, CARRIERS) or is_udf(value)
        node.is_object = is_installed and not node.is_container
        try:
            reduced = reduction(value)
        except Exception:  # whatever an object's own method raises: it cannot be pickled
            node.is_opaque = is_installed
            if not is_installed:  # of the user's own objects the attributes are known still
                node.ordered = [self._child(cls)]
                node.unordered = self._pairs(getattr(value, "__dict__", {}).items())
            return
        if isinstance(reduced, str):  # a global name
            node.label = f"{cls.__name__} {getattr(value, '__module__', '')} {reduced}"
            node.ordered = [self._child(cls)]
            return
        parts = [*reduced, None, None, None]  # its factory, the arguments, its state, items, pairs
        node.ordered = [self._child(part) for part in (cls, *parts[:3], list(parts[3] or ()))]
        found = self._pairs(parts[4] or ())
        if isinstance(value, collections.OrderedDict):
            node.ordered += [child for pair in found for child in pair]
        else:
            node.unordered = found

    def _use(self, module: types.ModuleType, attributes: Iterable[str]) -> _Child:
        """Note which attributes of a module are used: `tables` and its `LIMIT` of `helpers.tables.LIMIT`."""
        child, value = self._module(module), module
        for attribute in attributes:
            if attribute not in vars(value):  # a function of the module may answer for it
                self._open.add(id(value))
                return child
            self.used[id(value)].add(attribute)
            value = vars(value)[attribute]
            if not _is_users_module(value):
                return child
            self._module(value)
        self._open.add(id(value))  # passed on as it is
        return child

    def _module(self, module: types.ModuleType) -> _Child:
        self._modules[id(module)] = module
        self.used.setdefault(id(module), set())
        return self._node(module)

    def _extend(self) -> bool:
        """Reach the attributes of modules that are used; tell whether there were new ones."""
        before = len(self._nodes)
        for key, module in list(self._modules.items()):
            if key in self._open:
                self.used[key] |= self._words & vars(module).keys()
            node = self._nodes[self._at[key]]
            if key in self._open:  # an attribute may be asked for by a computed name
                node.ordered = [self._child(code_text.file_text(getattr(module, "__file__", None) or ""))]
            node.unordered = [
                (self._child(name), self._module(value) if _is_users_module(value) else self._child(value))
                for name, value in list(vars(module).items())
                if name in self.used[key]
            ]
        return len(self._nodes) > before

    def _spread_opacity(self) -> None:
        """Let installed objects that hold what cannot be pickled count by their type: they cannot be pickled either."""
        opaque = {i for i, node in enumerate(self._nodes) if node.is_opaque}
        grown = bool(opaque)
        while grown:
            found = {
                i
                for i, node in enumerate(self._nodes)
                if i not in opaque
                and (node.is_object or node.is_container)
                and not opaque.isdisjoint(chain(node.ordered, *node.unordered))
            }
            opaque |= found
            grown = bool(found)
        for i in opaque:
            if self._nodes[i].is_object:
                self._nodes[i].ordered, self._nodes[i].unordered = [], []


def _hash(*parts: bytes) -> bytes:
    return blake2b(b"".join(parts), digest_size=16).digest()


def _shown(plain: Any) -> str:
    """A plain value as text; Python refuses to write very long numbers in decimals."""
    return f"int {plain:x}" if type(plain) is int else f"{type(plain).__name__} {plain!r}"


def _is_bound(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # a variable that has no value yet
        return False
    return True


def _is_users_module(value: Any) -> TypeGuard[types.ModuleType]:
    return isinstance(value, types.ModuleType) and is_users(value)


def _made_of(cls: type) -> dict[str, Any]:
    """The fields of a dataclass or named tuple, the members of an enum: Python derives the rest from them."""
    if issubclass(cls, enum.Enum):
        return {name: member._value_ for name, member in cls.__members__.items()}
    if "__dataclass_fields__" in vars(cls):
        options = {name: getattr(vars(cls)["__dataclass_params__"], name) for name in _OPTIONS}
        fields = vars(cls)["__dataclass_fields__"].values()
        return options | {each.name: {name: getattr(each, name) for name in _FIELD} for each in fields}
    if issubclass(cls, tuple) and "_fields" in vars(cls):
        return {"fields": vars(cls)["_fields"], "defaults": vars(cls)["_field_defaults"]}
    return {}


def _is_made(cls: type, name: str, value: Any) -> bool:
    """Whether Python has generated an attribute of such a class."""
    function = getattr(value, "__func__", value)
    if isinstance(function, types.FunctionType):
        return function.__code__.co_filename == "<string>" or function.__globals__.get("__name__") in _MAKERS
    if issubclass(cls, enum.Enum):
        return name in cls.__members__ or (name.startswith("_") and name.endswith("_"))
    return type(value).__name__ == "_tuplegetter"


def _is_found_among_users(name: str) -> bool:
    """Whether a module that is not imported yet would be one of the user's."""
    try:
        spec = importlib.util.find_spec(name.split(".")[0])
    except (ImportError, ValueError):
        return False
    places = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec is not None else []
    return any("." in place or "/" in place for place in places) and not any(map(is_installed, places))


def _annotations(function: types.FunctionType) -> dict[str, Any]:
    try:
        return function.__annotations__
    except NameError:  # from Python 3.14 on they are evaluated when asked for, and may name what is not there
        return {}


def _known_of(value: Any) -> Any:
    """What is known of an object of the JVM: the text of a column, the columns of a DataFrame, a broadcast value."""
    kind = type(value).__name__
    if kind == "Column":
        return repr(value)
    if kind == "Broadcast":
        return value.value
    return value.schema.simpleString() if kind == "DataFrame" else None
