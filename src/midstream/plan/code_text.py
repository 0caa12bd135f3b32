"""The text of a code object, equal for equal code, and the names from outside that it uses.

The text is the syntax tree where the source is surely that of the code, so that comments, layout and another
Python make no difference. It is the bytecode otherwise: where the file was edited after it was imported, where there
is no file, and where several lambdas are on one line. Pure, except for the source, which comes from Python's own cache.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import sys
import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"}
_LOADS.add("LOAD_FROM_DICT_OR_DEREF")
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_UNSAID = {"ctx", "kind", "type_comment"}  # fields of a syntax tree that say nothing about what it does

# A file may be edited while its code is loaded: the text that was right once is right as long as the code lives.
_known: weakref.WeakKeyDictionary[types.CodeType, str] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Uses:
    """The names that a code object, and those inside it, take from outside."""

    paths: frozenset[tuple[str, ...]]  # ("helpers", "tables", "LIMIT"): a name, and the attributes asked of it
    imports: frozenset[tuple[str, int, tuple[str, ...]]]  # (module, level, names) of imports inside the function
    words: frozenset[str]  # all names and all strings that could be one


def text(code: types.CodeType) -> str:
    """Return a text that differs where code does."""
    if code not in _known:
        _known[code] = _from_source(code) or _from_bytecode(code)
    return _known[code]


def is_current(code: types.CodeType) -> bool:
    """Tell whether the file of a code object, as it is now, still has that code."""
    return bool(_same(code))


def file_text(filename: str) -> str:
    """Return the text of a file, or of a cell of a notebook, as it is now."""
    linecache.checkcache(filename)
    return "".join(linecache.getlines(filename))


def _from_source(code: types.CodeType) -> str:
    """The syntax tree of the source, if it is surely that of the code: the file may have been edited since."""
    found = _same(code)
    in_place = {shape for line, shape in found if line == code.co_firstlineno}
    shapes = in_place or {shape for _, shape in found}
    return shapes.pop() if len(shapes) == 1 else ""


def _same(code: types.CodeType) -> list[tuple[int, str]]:
    """The lines and syntax trees of the functions of the file that have the bytecode of this one."""
    wanted, there = _from_bytecode(code), _definitions(file_text(code.co_filename)).get(code.co_name, ())
    return [(found.co_firstlineno, shape) for found, shape in there if _from_bytecode(found) == wanted]


@functools.lru_cache(maxsize=64)
def _definitions(source: str) -> dict[str, list[tuple[types.CodeType, str]]]:
    """The functions of a text by name, compiled, each with its syntax tree; "": it is not known which."""
    try:
        tree = ast.parse(source)
        compiled = compile(source, "<source>", "exec", dont_inherit=True)
        nodes: dict[tuple[str, int], list[_Function]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Lambda):
                nodes.setdefault(("<lambda>", node.lineno), []).append(node)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                nodes.setdefault((node.name, first), []).append(node)
        found: dict[str, list[tuple[types.CodeType, str]]] = {}
        for code in _inside(compiled):
            at = nodes.get((code.co_name, code.co_firstlineno), [])
            found.setdefault(code.co_name, []).append((code, _shape(_bare(at[0])) if len(at) == 1 else ""))
    except (SyntaxError, ValueError, RecursionError):  # half edited, or nested too deeply for Python
        return {}
    return found


def _inside(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _inside(constant)


def _bare(node: _Function) -> list[Any]:
    """A function without its decorators, defaults and annotations: these are values, and may be of another text."""
    of = node.args
    parameters = (of.posonlyargs, of.args, [of.vararg] * bool(of.vararg), of.kwonlyargs, [of.kwarg] * bool(of.kwarg))
    return [type(node).__name__, *([each.arg for each in kind if each] for kind in parameters), node.body]


def _shape(node: Any) -> str:
    """A syntax tree as text that is the same in all versions of Python: fields that say nothing are left out."""
    if isinstance(node, ast.AST):
        said = [(name, getattr(node, name, None)) for name in node._fields if name not in _UNSAID]
        inner = ",".join(f"{name}={_shape(field)}" for name, field in said if field is not None and field != [])
        return f"{type(node).__name__}({inner})"
    if isinstance(node, list):
        return f"[{','.join(map(_shape, node))}]"
    return f"{type(node).__name__}:{node:x}" if type(node) is int else f"{type(node).__name__}:{node!r}"


def _from_bytecode(code: types.CodeType) -> str:
    """The bytecode as text, without file and line; that of another minor version of Python differs."""
    parts = [
        ".".join(map(str, sys.version_info[:2])),
        code.co_name,
        code.co_code.hex(),
        getattr(code, "co_exceptiontable", b"").hex(),
        repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)),
        repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)),
        *map(_constant, code.co_consts),
    ]
    return "\0".join(parts)


def _constant(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return f"({_from_bytecode(value)})"
    if isinstance(value, (tuple, frozenset)):
        inner = [_constant(each) for each in value]
        return f"{type(value).__name__}({','.join(inner if isinstance(value, tuple) else sorted(inner))})"
    return f"{type(value).__name__}:{value:x}" if type(value) is int else f"{type(value).__name__}:{value!r}"


@functools.lru_cache(maxsize=1024)
def uses(code: types.CodeType) -> Uses:
    """Return the names from outside that code uses, also in comprehensions, lambdas and classes inside it."""
    paths: set[tuple[str, ...]] = set()
    imports: set[tuple[str, int, tuple[str, ...]]] = set()
    words: set[str] = set()
    for each in (code, *_inside(code)):
        steps = [step for step in dis.get_instructions(each) if step.opname != "EXTENDED_ARG"]
        for i, step in enumerate(steps):
            if step.opname in _LOADS:
                paths.add((step.argval, *_following(steps, i, _ATTRIBUTES)))
            elif step.opname == "IMPORT_NAME":
                names = steps[i - 1].argval or ()  # `from module import names`
                imports.add((step.argval, steps[i - 2].argval, tuple(names)))
        words.update(each.co_names)
        words.update(word for word in each.co_consts if isinstance(word, str) and word.isidentifier())
    return Uses(frozenset(paths), frozenset(imports), frozenset(words))


def _following(steps: list[dis.Instruction], i: int, kinds: set[str]) -> Iterator[str]:
    while i + 1 < len(steps) and steps[i + 1].opname in kinds:
        i += 1
        yield steps[i].argval
