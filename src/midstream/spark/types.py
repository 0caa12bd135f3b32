"""Types as text that Spark can read again, whatever their fields are called."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def ddl(type: DataType) -> str:
    """Write a type as its `simpleString`, but with the names of fields quoted that need it; all of it may be null.

    >>> ddl(StructType().add("a b", "integer", nullable=False).add("c", "long"))
    'struct<`a b`:int,c:bigint>'
    """
    if isinstance(type, StructType):
        return struct((field.name, ddl(field.dataType)) for field in type)
    if isinstance(type, ArrayType):
        return f"array<{ddl(type.elementType)}>"
    if isinstance(type, MapType):
        return f"map<{ddl(type.keyType)},{ddl(type.valueType)}>"
    return type.simpleString()


def struct(fields: Iterable[tuple[str, str]]) -> str:
    """Write the type of a struct from names and types.

    >>> struct([("a b", "int"), ("c", "bigint")])
    'struct<`a b`:int,c:bigint>'
    """
    return f"struct<{','.join(f'{_name(name)}:{type}' for name, type in fields)}>"


def _name(name: str) -> str:
    plain = name.isascii() and name.isidentifier()
    return name if plain else "`" + name.replace("`", "``") + "`"
