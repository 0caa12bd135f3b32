"""The columns of a spool: simple DDL, read without Spark, and the Arrow types that Spark has for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from midstream.errors import SchemaError

# {what a user may write: what Spark calls it}
_NAMES = {"long": "bigint", "integer": "int", "byte": "tinyint", "short": "smallint", "real": "float"}
_NAMES |= {"dec": "decimal", "numeric": "decimal"}
_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_COLUMN = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>\w+))\s*:?\s+(?P<type>[A-Za-z]+)"
    r"(?:\s*\(\s*(?P<precision>\d+)\s*(?:,\s*(?P<scale>\d+)\s*)?\))?\s*(?P<end>,|$)"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A name and a simple type, as Spark writes it."""

    name: str
    type: str  # "bigint", "decimal(10,2)"

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type."""
        if self.type.startswith("decimal"):
            precision, scale = map(int, self.type[len("decimal(") : -1].split(","))
            return pa.decimal128(precision, scale)
        return _ARROW[self.type]


def parse(ddl: str) -> tuple[Column, ...]:
    """Read a schema such as "user long, price decimal(10,2), ts timestamp".

    Not promised: nested types and `not null`; both are refused.

    >>> parse("user long, `unit price` decimal(10, 2)")
    (Column(name='user', type='bigint'), Column(name='unit price', type='decimal(10,2)'))
    """
    found: list[Column] = []
    at = 0
    while True:
        match = _COLUMN.match(ddl, at)
        if match is None:
            raise SchemaError(
                f"the schema {ddl!r} cannot be read at {ddl[at : at + 40].strip()!r}: write names and simple types, "
                "as in 'user long, price double, ts timestamp'"
            )
        name = match["quoted"].replace("``", "`") if match["quoted"] else match["plain"]
        found.append(Column(name, _type(match, ddl)))
        at = match.end()
        if match["end"] != ",":
            break
    names = [column.name.lower() for column in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"the schema {ddl!r} has {', '.join(twice)} twice; give each column its own name")
    return tuple(found)


def ddl(columns: Iterable[Column]) -> str:
    """Write columns the way Spark reads them."""
    return ", ".join("`{}` {}".format(column.name.replace("`", "``"), column.type) for column in columns)


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema; every column may be null."""
    return pa.schema([(column.name, column.arrow) for column in columns])


def _type(match: re.Match[str], ddl: str) -> str:
    word = match["type"].lower()
    name = _NAMES.get(word, word)
    if name == "decimal":
        precision, scale = int(match["precision"] or 10), int(match["scale"] or 0)
        if not 1 <= precision <= 38 or scale > precision:
            raise SchemaError(f"the schema {ddl!r} has decimal({precision},{scale}): at most 38 digits, scale included")
        return f"decimal({precision},{scale})"
    if name not in _ARROW or match["precision"]:
        raise SchemaError(
            f"the schema {ddl!r} has the type {match['type']!r}, which a spool cannot take; it takes "
            f"{', '.join([*_ARROW, 'decimal(p,s)'])}"
        )
    return name
