"""The sources of the query under a job, in the order in which Spark counts them: a list that only grows.

Spark knows the sources of a query by their number, in its offset log as in its files. So a source that is added gets
the next number, whatever the running plan looks like, and one that is removed keeps its number and is not read. Pure:
what becomes of Spark's files is in `query`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from midstream.errors import CheckpointError, PlanError
from midstream.plan.code import Code, is_same
from midstream.plan.plan import Plan, Source

HEARTBEAT = ""  # the id of the heartbeat
_NONE = "-"  # what Spark's offset log has for a source that has not been read yet
_HEADER = 2  # lines of Spark's offset log before the offsets: version and metadata


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """One source of the query."""

    id: str
    schema: str = ""
    code: Code | None = None  # how it is made, where the script cannot be asked
    lines: int = 1  # of Spark's offset log: more than one for a union of several readers
    forgotten: bool = False  # nothing is left of it but its number


def tags(feeds: Iterable[Feed]) -> dict[str, int]:
    """Return the number of each source."""
    return {feed.id: i for i, feed in enumerate(feeds) if not feed.forgotten}


def grown(feeds: Sequence[Feed], plan: Plan, lines: Mapping[str, int], *, heartbeat: bool) -> tuple[Feed, ...]:
    """Add the sources of a plan that the query lacks, and take up newer code of those that it has.

    Args:
        feeds: of the query so far.
        plan: whose sources are wanted.
        lines: of Spark's offset log, for each source that can be made.
        heartbeat: whether one is wanted; one that is there stays.
    """
    wanted: dict[str, Source] = {source.id: source for source in plan.of(Source)}
    found = []
    for feed in feeds:
        source = None if feed.forgotten else wanted.pop(feed.id, None)
        if source is not None:
            if lines.get(feed.id, feed.lines) != feed.lines:
                raise PlanError(
                    f"source {feed.id!r} was made of {feed.lines} streams and is made of {lines[feed.id]} now: Spark "
                    "could not tell their offsets apart. Add the new one as a source of its own"
                )
            feed = msgspec.structs.replace(feed, schema=source.schema, code=source.code)
        found.append(feed)
    if heartbeat and HEARTBEAT not in tags(found):
        found.append(Feed(id=HEARTBEAT))
    added = [Feed(id=id, schema=s.schema, code=s.code, lines=lines.get(id, 1)) for id, s in wanted.items()]
    return (*found, *added)


def check_known(feeds: Iterable[Feed], plan: Plan) -> None:
    """Refuse a source under the name of a removed one that is made in another way: offsets of one are not another's."""
    known = {feed.id: feed for feed in feeds if not feed.forgotten}
    for source in plan.of(Source):
        feed = known.get(source.id)
        if feed is None and source.code is None:
            raise PlanError(
                f"source {source.id!r} is added to a running job, so a restart must be able to make it again: give a "
                "function of the session instead of a DataFrame, such as lambda spark: spark.readStream..."
            )
        if feed is None:
            continue
        if feed.code is not None and source.code is not None and not is_same(feed.code, source.code):
            raise PlanError(
                f"there was a source {source.id!r} before, made by other code; its offsets are kept. Say "
                f"job.forget({source.id!r}) first, or give the new source another id"
            )
        if feed.schema != source.schema:
            raise PlanError(
                f"source {source.id!r} has the schema {feed.schema}; the new plan gives it {source.schema}. A running "
                "job cannot change that: add a source under another id, or restart with on_drift='apply'"
            )


def offsets_of(log: str) -> tuple[str, ...]:
    """Read the offsets of an epoch from Spark's log; sources at the end that have not been read yet do not count."""
    return _read(log.splitlines()[_HEADER:])


def by_source(offsets: Sequence[str], feeds: Sequence[Feed]) -> dict[str, str]:
    r"""Return the offsets of each source that has been read; of several readers, one line each.

    >>> by_source(("7", "-", "4", "9"), [Feed(id="bids"), Feed(id=""), Feed(id="clicks", lines=2)])
    {'bids': '7', 'clicks': '4\n9'}
    """
    found = {}
    for i, feed in enumerate(feeds):
        lines = offsets[first_line(feeds, i) : first_line(feeds, i + 1)]
        if feed.id != HEARTBEAT and not feed.forgotten and any(line != _NONE for line in lines):
            found[feed.id] = "\n".join(lines)
    return found


def _read(offsets: Sequence[str]) -> tuple[str, ...]:
    found = list(offsets)
    while found and found[-1] == _NONE:
        found.pop()
    return tuple(found)


def fitted(log: str, feeds: Sequence[Feed], where: str) -> str:
    r"""Make an entry of Spark's offset log fit the sources of the query: no offset for new and forgotten ones.

    >>> fitted("v1\n{}\n7", [Feed(id="bids"), Feed(id="clicks")], "offsets/3").splitlines()
    ['v1', '{}', '7', '-']
    """
    lines = log.splitlines()
    head, offsets = lines[:_HEADER], lines[_HEADER:]
    total = sum(feed.lines for feed in feeds)
    if len(offsets) > total:
        raise CheckpointError(
            f"{where} has offsets of {len(offsets)} sources, the job has {total}: the checkpoint was changed by hand; "
            "restore it whole, or start from a savepoint"
        )
    offsets += [_NONE] * (total - len(offsets))
    at = 0
    for feed in feeds:
        if feed.forgotten:
            offsets[at : at + feed.lines] = [_NONE] * feed.lines
        at += feed.lines
    return "\n".join([*head, *offsets])


def committed(feeds: Sequence[Feed], plan: Plan, offsets: Sequence[str]) -> tuple[Feed, ...]:
    """Leave out sources at the end that the plan does not read and that no committed epoch has offsets of."""
    kept, wanted = list(feeds), {HEARTBEAT, *(source.id for source in plan.of(Source))}
    while kept and kept[-1].id not in wanted and first_line(kept, len(kept) - 1) >= len(offsets):
        kept.pop()
    return tuple(kept)


def first_line(feeds: Sequence[Feed], index: int) -> int:
    """The number of the first offset of a source; Spark also names a directory by it."""
    return sum(feed.lines for feed in feeds[:index])


def shortened(log: str, feeds: Sequence[Feed]) -> str:
    """Leave out the offsets of sources at the end that were never used: `feeds` are those that stay."""
    return "\n".join(log.splitlines()[: _HEADER + first_line(feeds, len(feeds))])


def comparable(offsets: Sequence[str], feeds: Sequence[Feed]) -> tuple[str, ...]:
    """Offsets without those of forgotten sources: what two records of one epoch must agree in."""
    gone = {first_line(feeds, i) + line for i, feed in enumerate(feeds) if feed.forgotten for line in range(feed.lines)}
    return _read([offset for line, offset in enumerate(offsets) if line not in gone])
