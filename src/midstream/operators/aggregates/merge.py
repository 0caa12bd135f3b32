"""Merging of accumulators, vectorised: sorted rows in, one merged accumulator per key out.

Fixed-width accumulators are columns of NumPy arrays and are merged without Python code per row or per key. Objects
(sketches, digests, strings, decimals, user-defined state) take one call per key.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.errors import StateError
from midstream.operators.aggregates.declare import Accumulator, Compiled, ResultColumn
from midstream.plan import code
from midstream.spark.arrow_values import python_values
from midstream.state.keys import Bytes, Rows

Array = npt.NDArray[Any]
Columns = dict[str, Any]  # accumulator name -> numpy array (fixed) or list (objects), one item per key

EXACT = Context(prec=80)  # for decimals, which have 38 digits; Python rounds to 28 without it

_REDUCE = {"add": np.add, "min": np.minimum, "max": np.maximum, "fmin": np.fmin}


class Merger:
    """The merge rules of one operator's aggregates."""

    def __init__(self, compiled: Compiled) -> None:
        self.accumulators = compiled.accumulators
        self.outputs = compiled.outputs
        self.fixed = [a for a in compiled.accumulators if a.dtype != "object"]
        self.objects = [a for a in compiled.accumulators if a.dtype == "object"]
        self.dtype = np.dtype([(a.name, a.dtype) for a in self.fixed])
        self._user = {a.name: code.load(a.code) for a in self.objects if a.code is not None}

    def reduce(self, batch: dict[str, pa.Array], rows: Rows, combined: bool) -> Columns:
        """Fold the rows of each key into one accumulator."""
        found: Columns = {}
        single = len(rows.starts) == len(rows.order)
        segment = rows.order if single else segments(rows)
        pick = {} if single else self._leaders(batch, rows, segment)
        for a in self.accumulators:
            if a.dtype == "object":
                parts = python_values(batch[a.name].take(pa.array(rows.order)))
                found[a.name] = [self._lifted(a, part) for part in parts]
            elif a.parts and combined:
                found[a.name] = _sum_lists(batch[a.name].take(pa.array(rows.order)))
            elif a.lift == "" and not combined:
                found[a.name] = np.diff(rows.starts, append=len(rows.order)).astype("<i8")
            else:
                values = batch[a.name].to_numpy(zero_copy_only=False)
                if a.merge in ("first", "last"):
                    found[a.name] = values[rows.order if single else pick[a.follows or a.name]]
                    continue
                arranged = values[rows.order]
                if a.dtype == "<f8":
                    arranged = arranged + 0.0  # -0.0 is 0.0: the sign of zero would depend on the order of rows
                if single:
                    found[a.name] = arranged
                elif a.parts:
                    found[a.name] = _sums(arranged[np.lexsort((arranged, segment))], segment, len(rows.starts))
                else:
                    if a.merge == "add":
                        guard(a.name, arranged, rows.starts)
                    found[a.name] = _REDUCE[a.merge].reduceat(arranged, rows.starts)
        return found

    def _leaders(self, batch: dict[str, pa.Array], rows: Rows, segment: Array) -> dict[str, Array]:
        """The row that decides each first and last."""
        pick = {}
        for a in self.accumulators:
            if a.merge in ("first", "last") and not a.follows:
                at = batch[a.name].to_numpy()[rows.order]
                tie = batch[a.name.replace(" at", " tie")].to_numpy()[rows.order]
                ranked = rows.order[np.lexsort((tie, at, segment))]
                ends = np.append(rows.starts[1:], len(ranked)) - 1
                pick[a.name] = ranked[rows.starts if a.merge == "first" else ends]
        return pick

    def merge(self, old: Columns, new: Columns, known: Array) -> Columns:
        """Merge stored and new accumulators of the same keys; `known` marks the keys that have stored ones."""
        merged: Columns = {}
        newer: dict[str, Array] = {}
        for a in self.fixed:
            if a.merge in ("first", "last") and not a.follows:
                newer[a.name] = ~known | _replaces(a, old, new)
        for a in self.accumulators:
            before, now = old[a.name], new[a.name]
            if a.merge in ("first", "last"):
                wins = newer[a.follows or a.name]
                if a.dtype == "object":
                    merged[a.name] = [n if w else b for b, n, w in zip(before, now, wins, strict=True)]
                else:
                    merged[a.name] = np.where(wins, now, before)
            elif a.dtype == "object":
                pairs = zip(before, now, known, strict=True)
                merged[a.name] = [self._merged(a, b, n) if k else n for b, n, k in pairs]
            else:
                with np.errstate(invalid="ignore"):  # of infinities
                    both = _REDUCE[a.merge](before, now)
                if a.merge == "add" and a.dtype == "<i8" and ((before ^ both) & (now ^ both) < 0)[known].any():
                    raise _overflow(a.name)
                merged[a.name] = both if known.all() else np.where(known, both, now)
        return merged

    def folded(self, columns: Columns, order: Array, starts: Array) -> Columns:
        """Merge accumulators run by run: the items of `order` from each start to the next, in that order."""
        if not self.objects and all(a.merge in _REDUCE for a in self.fixed):
            found: Columns = {}
            for a in self.fixed:
                arranged = columns[a.name][order]
                if a.merge == "add" and a.dtype == "<i8":
                    guard(a.name, arranged, starts)
                found[a.name] = _REDUCE[a.merge].reduceat(arranged, starts)
            return found
        lengths = np.diff(starts, append=len(order))
        result = taken(columns, order[starts])
        for depth in range(1, int(lengths.max())):
            at = np.flatnonzero(lengths > depth)
            more = taken(columns, order[starts[at] + depth])
            merged = self.merge(taken(result, at), more, np.ones(len(at), dtype=bool))
            for name, column in result.items():
                if isinstance(column, list):
                    for i, value in zip(at.tolist(), merged[name], strict=True):
                        column[i] = value
                else:
                    column[at] = merged[name]
        return result

    def decode(self, values: list[bytes | None]) -> tuple[Columns, Array]:
        """Turn stored values into columns; keys without one get zeros and are not known."""
        if None in values:
            known = np.array([v is not None for v in values], dtype=bool)
        else:
            known = np.ones(len(values), dtype=bool)
        width = self.dtype.itemsize
        blank = bytes(width)
        if self.objects:
            heads = [blank if v is None else v[:width] for v in values]
            tails = [[None] * len(self.objects) if v is None else msgspec.msgpack.decode(v[width:]) for v in values]
        else:
            heads = values if known.all() else [v or blank for v in values]  # type: ignore[assignment]
            tails = []
        columns: Columns = {}
        if self.fixed:
            records = np.frombuffer(b"".join(heads), self.dtype)
            columns = {a.name: records[a.name] for a in self.fixed}
        for i, a in enumerate(self.objects):
            columns[a.name] = [_thawed(a, tail[i]) for tail in tails]
        return columns, known

    def gathered(self, parts: list[tuple[list[Array], Array]]) -> tuple[Columns, Array]:
        """Concatenate what was read as numbers, group by group; and which keys are known."""
        columns = zip(*(columns for columns, _ in parts), strict=True)
        found: Columns = {a.name: np.concatenate(c) for a, c in zip(self.fixed, columns, strict=True)}
        return found, np.concatenate([known for _, known in parts])

    def encode_fixed(self, columns: Columns) -> Bytes:
        """Turn columns into a matrix of stored values, where all accumulators are fixed."""
        size = len(columns[self.fixed[0].name])
        records = np.empty(size, self.dtype)
        for a in self.fixed:
            records[a.name] = columns[a.name]
        return records.view(np.uint8).reshape(size, self.dtype.itemsize)

    def encode(self, columns: Columns) -> list[bytes]:
        """Turn columns into stored values."""
        if not self.objects:
            return [value.tobytes() for value in self.encode_fixed(columns)]
        size = len(columns[self.accumulators[0].name])
        heads = self.encode_fixed(columns) if self.fixed else np.empty((size, 0), np.uint8)
        tails = zip(*([_frozen(a, v) for v in columns[a.name]] for a in self.objects), strict=True)
        return [head.tobytes() + msgspec.msgpack.encode(tail) for head, tail in zip(heads, tails, strict=True)]

    def results(self, columns: Columns, types: list[pa.DataType]) -> list[pa.Array]:
        """Compute the output columns."""
        return [self._result(o, columns, t) for o, t in zip(self.outputs, types, strict=True)]

    def _result(self, output: ResultColumn, columns: Columns, type: pa.DataType) -> pa.Array:
        values = columns[output.values]
        if output.function == "distinct":
            return pa.array([_estimate(v) for v in values], type)
        if output.function == "quantiles":
            return pa.array([_quantiles(v, output.parameters) for v in values], type)
        if output.function == "user":
            aggregator = self._user[output.values]
            return pa.array([aggregator.result(v) for v in values], type)
        absent = (columns[output.present] == 0) if output.present else None
        if absent is not None and not absent.any():
            absent = None
        if output.function == "mean":
            present = np.maximum(columns[output.present], 1)
            if isinstance(values, list):
                values = np.array([float(v or 0) for v in values])
            return pa.array(values / present, type, mask=absent)
        if isinstance(values, list):
            gone = absent if absent is not None else np.zeros(len(values), bool)
            return fitting(output.values, [None if g else v for v, g in zip(values, gone, strict=True)], type)
        if pa.types.is_boolean(type):
            return pa.array(values != 0, type, mask=absent)
        if pa.types.is_temporal(type):
            whole = pa.array(values, pa.int64(), mask=absent)
            return whole.cast(pa.int32()).cast(type) if pa.types.is_date32(type) else whole.cast(type)
        return pa.array(values, mask=absent).cast(type)

    def _lifted(self, a: Accumulator, part: Any) -> Any:
        if a.merge == "digest":
            return _digest_of(part)
        if a.merge == "user":
            aggregator = self._user[a.name]
            return _as_stored(aggregator.add(aggregator.zero(), part))
        if a.merge == "sketch" and part is not None:
            return _union_of(None, part)
        return part

    def _merged(self, a: Accumulator, before: Any, now: Any) -> Any:
        if a.merge == "user":
            return _as_stored(self._user[a.name].merge(before, now))
        if before is None or now is None:
            return now if before is None else before
        if a.merge == "sketch":
            return _union_of(before, now)
        if a.merge == "digest":
            return _merge_digests(before, now)
        if a.merge == "add":
            return EXACT.add(before, now)
        return min(before, now) if a.merge == "min" else max(before, now)


def taken(columns: Columns, at: Array) -> Columns:
    """Take some items of every column."""
    return {n: [c[i] for i in at.tolist()] if isinstance(c, list) else c[at] for n, c in columns.items()}


def joined(one: Columns, other: Columns) -> Columns:
    """Concatenate the items of two sets of columns."""
    return {n: c + other[n] if isinstance(c, list) else np.concatenate([c, other[n]]) for n, c in one.items()}


def _replaces(a: Accumulator, old: Columns, new: Columns) -> Array:
    """Where a new first (last) comes before (after) the stored one: by order, then by tie."""
    tie = a.name.replace(" at", " tie")
    before, now = (old[a.name], old[tie]), (new[a.name], new[tie])
    if a.merge == "last":
        before, now = now, before
    result: Array = (now[0] < before[0]) | ((now[0] == before[0]) & (now[1] < before[1]))
    return result


def guard(name: str, values: Array, starts: Array) -> None:
    """Refuse a sum of integers that does not fit 64 bits: add the upper and the lower halves separately."""
    if max(abs(int(values.max())), abs(int(values.min()))) * len(values) >= 1 << 63:
        carried = np.add.reduceat(values & 0xFFFF_FFFF, starts) >> 32
        upper = np.add.reduceat(values >> 32, starts) + carried
        if ((upper < -(1 << 31)) | (upper >= 1 << 31)).any():
            raise _overflow(name)


def fitting(name: str, values: Any, type: pa.DataType) -> pa.Array:
    """Return values as a column; refuse decimals that have too many digits."""
    try:
        return pa.array(values, type)
    except pa.ArrowInvalid as error:
        raise StateError(f"the {name!r} of a key does not fit into {type}; cast the column to double first") from error


def _overflow(name: str) -> StateError:
    return StateError(f"the {name!r} of a key does not fit into 64 bits; cast the column to decimal or double first")


def segments(rows: Rows) -> Array:
    """The number of the key that each row, as arranged, belongs to."""
    first = np.zeros(len(rows.order), dtype=np.intp)
    first[rows.starts[1:]] = 1
    return np.cumsum(first)


def _sums(values: Array, segment: Array, keys: int) -> Array:
    """Add up the sorted values of each key one after the other: additional zeros do not change a bit."""
    return np.bincount(segment, weights=values, minlength=keys)


def _sum_lists(lists: pa.Array) -> Array:
    """Add up the sorted values of each list."""
    sizes = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return _sums(lists.flatten().to_numpy(zero_copy_only=False), np.repeat(np.arange(len(sizes)), sizes), len(sizes))


def _as_stored(state: Any) -> Any:
    """The state of a user-defined aggregate as it will be read back: the same types of objects in every epoch."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state))


def _frozen(a: Accumulator, value: Any) -> Any:
    return str(value) if a.decimal and value is not None else value


def _thawed(a: Accumulator, value: Any) -> Any:
    return Decimal(value) if a.decimal and value is not None else value


def _union_of(before: bytes | None, now: bytes) -> bytes:
    """Merge HyperLogLog sketches; a union's estimate depends on the registers alone, not on the order of updates."""
    import datasketches as ds

    union = ds.hll_union(12)
    for sketch in (before, now):
        if sketch is not None:
            union.update(ds.hll_sketch.deserialize(sketch))
    return bytes(union.get_result(ds.tgt_hll_type.HLL_8).serialize_compact())


def _estimate(sketch: bytes | None) -> int:
    import datasketches as ds

    return 0 if sketch is None else round(ds.hll_sketch.deserialize(sketch).get_estimate())


def _digest_of(values: list[float] | None) -> bytes | None:
    import datasketches as ds

    numbers = [v for v in values or () if not math.isnan(v)]
    if not numbers:
        return None
    digest = ds.tdigest_double(200)
    for number in numbers:
        digest.update(number)
    return bytes(digest.serialize())


def _merge_digests(before: bytes, now: bytes) -> bytes:
    import datasketches as ds

    digest = ds.tdigest_double.deserialize(before)
    digest.merge(ds.tdigest_double.deserialize(now))
    return bytes(digest.serialize())


def _quantiles(digest: bytes | None, fractions: tuple[float, ...]) -> Any:
    import datasketches as ds

    if digest is None:
        return None
    found = [ds.tdigest_double.deserialize(digest).get_quantile(f) for f in fractions]
    return found[0] if len(found) == 1 else found
