"""Groups are dealt out so that the fewest move and the loads come out even."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from midstream.placement.balance import even, fair

OWNERS = st.lists(st.sampled_from("abcde"), min_size=1, max_size=200)
SHARES = st.dictionaries(st.sampled_from("abcdefg"), st.integers(1, 4), min_size=1)


@given(OWNERS, SHARES, st.data())
def test_everyone_gets_a_share_and_no_group_moves_without_need(
    owners: list[str], shares: dict[str, int], data: st.DataObject
):
    load = {g: float(data.draw(st.integers(0, 9))) for g in range(0, len(owners), 3)}
    dealt, parts = fair(owners, shares, load), sum(shares.values())
    held, got = Counter(owner for owner in owners if owner in shares), Counter(dealt)
    for owner, share in shares.items():
        assert abs(got[owner] - len(owners) * share / parts) < len(shares)
        assert len(owners) * share // parts <= got[owner] <= len(owners) * share // parts + 1
    moved = sum(before != after for before, after in zip(owners, dealt, strict=True))
    assert moved == sum(max(got[owner] - held[owner], 0) for owner in got), "who has too few takes, nobody else"


@given(OWNERS, st.sampled_from(["ab", "abc", "abcdefg"]))
def test_no_other_deal_moves_fewer(owners: list[str], names: str):
    shares = dict.fromkeys(names, 1)
    dealt = fair(owners, shares)
    held = sorted((Counter(owner for owner in owners if owner in shares)[name] for name in names), reverse=True)
    got = sorted((Counter(dealt)[name] for name in names), reverse=True)
    least = len(owners) - sum(map(min, held, got))
    assert sum(before != after for before, after in zip(owners, dealt, strict=True)) == least


def test_what_moves_is_chosen_by_load():
    owners = ["a"] * 64 + ["b"] * 64
    load = {group: float(group % 7 + 1) ** 2 for group in range(128)}
    dealt = fair(owners, {"a": 1, "b": 1, "c": 1}, load)
    total = {name: sum(load[group] for group, owner in enumerate(dealt) if owner == name) for name in "abc"}
    assert sum(before != after for before, after in zip(owners, dealt, strict=True)) == 42
    assert max(total.values()) < 1.1 * min(total.values())


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=100), SHARES)
def test_an_even_deal_is_never_worse_than_before(loads: list[int], shares: dict[str, int]):
    load = {group: float(size) for group, size in enumerate(loads)}
    owners = [sorted(shares)[0]] * len(loads)

    def worst(dealt: tuple[str, ...] | list[str]) -> float:
        return max(sum(load[g] for g, o in enumerate(dealt) if o == name) / share for name, share in shares.items())

    assert worst(even(owners, shares, load)) <= worst(owners)


def test_who_is_gone_keeps_nothing():
    assert set(even(["a", "gone", "b"], {"a": 1, "b": 1}, {0: 1.0, 1: 1.0, 2: 1.0})) == {"a", "b"}
