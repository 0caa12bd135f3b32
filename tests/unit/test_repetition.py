"""The rule of repetition: no eight lines stand twice in the tree; what is the same is written once."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
FEWEST = 8  # lines, but for empty ones, that are a repetition


def repetitions(texts: dict[str, str]) -> list[tuple[str, ...]]:
    """Find runs of lines that stand in several places; return these, as `file:line`."""
    places = defaultdict[tuple[str, ...], list[str]](list)
    for name, text in texts.items():
        lines = [(at, line.strip()) for at, line in enumerate(text.splitlines(), start=1) if line.strip()]
        for start in range(len(lines) - FEWEST + 1):
            run = lines[start : start + FEWEST]
            places[tuple(line for _, line in run)].append(f"{name}:{run[0][0]}")
    return [tuple(found) for found in places.values() if len(found) > 1]


def test_no_eight_lines_stand_twice():
    files = [path for name in ("src", "tests", "examples", "tools") for path in sorted((ROOT / name).rglob("*.py"))]
    assert len(files) > 400
    assert not repetitions({str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files})


def test_a_repetition_is_found_whatever_its_indentation_and_empty_lines():
    text = "\n".join(f"x{n} = {n}" for n in range(FEWEST))
    assert repetitions({"a": text, "b": "\n\n" + text.replace("\n", "\n\n    ")}) == [("a:1", "b:3")]
    assert not repetitions({"a": text, "b": text.replace("x3", "y3")})
    assert repetitions({"a": f"{text}\n{text}"}) == [("a:1", "a:9")]
