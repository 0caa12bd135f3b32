"""What the tests of user code share: modules that a user wrote."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """Give a function that writes, or edits, modules of the user's, and imports the last of them anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made: set[str] = set()

    def written(**texts: str) -> ModuleType:
        for name in made | texts.keys():
            sys.modules.pop(name, None)
        for name, text in texts.items():
            made.add(name)
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        return importlib.import_module(list(texts)[-1])

    yield written
    for name in made:
        sys.modules.pop(name, None)
