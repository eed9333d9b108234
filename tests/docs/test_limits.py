"""The page of limits lags behind nothing: its values are those of the code, and no limit of the code is missing."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

import pytest

from bridge.settings import PREFIX, BridgeSettings
from tests.docs.pages import text_of
from tests.support import ROOT

PAGE: Final = text_of("reference/limits.md")

ROWS: Final = re.findall(r"^\| [^|]+ \| ([\d,]+)[^|]* \| `([\w.]+)` \| [^|]+ \|$", PAGE, re.MULTILINE)

NOT_MET: Final = frozenset({
    "bridge.chain.MAX_CHAINS",
    "bridge.chain.MAX_STEPS",
    "bridge.dev.MAX_BACK_OFF",
    "bridge.jwks.MAX_AGE_SECONDS",
    "bridge.watches.MAX_COUNTED",
    "bridge.worker.MAX_HEARTBEAT_THROTTLE",
})  # fmt: skip
"""Bounds of what the bridge remembers or how it behaves, beyond which nobody notices anything."""


def value_of(place: str) -> float:
    """The value of a setting, a constant, a field's default, or an item."""
    if place.startswith(PREFIX):
        return float(BridgeSettings.model_fields[place.removeprefix(PREFIX).lower()].default)
    module, _, name = place.rpartition(".")
    owner: Any = import_module(module) if _is_module(module) else _attribute(module)
    if isinstance(owner, dict):
        return float(owner[name])
    value = getattr(owner() if inspect.isclass(owner) else owner, name)
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def _is_module(name: str) -> bool:
    return (ROOT / f"{name.replace('.', '/')}.py").exists()


def _attribute(place: str) -> Any:
    module, _, name = place.rpartition(".")
    return getattr(import_module(module), name)


def limits() -> list[str]:
    """Constants of bridge and kit that are named as limits."""
    found = []
    for folder in ("bridge", "workflows/kit"):
        for path in sorted((ROOT / folder).glob("*.py")):
            names = re.findall(r"^((?:MAX|MOST)_\w+): Final = ", path.read_text("utf-8"), re.MULTILINE)
            found += [f"{folder.replace('/', '.')}.{path.stem}.{name}" for name in names]
    return found


def test_the_page_is_read_as_it_is_written() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| Limit")]
    assert len(rows) == len(ROWS) > 50


@pytest.mark.parametrize(("default", "place"), ROWS, ids=[place for _, place in ROWS])
def test_a_limit_is_the_one_documented(default: str, place: str) -> None:
    assert value_of(place) == float(default.replace(",", ""))


@pytest.mark.parametrize("place", limits())
def test_every_limit_has_its_row(place: str) -> None:
    assert (place in NOT_MET) is not (place in {place for _, place in ROWS})
