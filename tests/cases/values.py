"""A JSON value of everything that writers and readers get wrong (PL-09)."""

from __future__ import annotations

import json
from typing import Any, Final

VALUE: Final[dict[str, Any]] = {
    "a": None,
    "b": [None, {}],
    "c": "",
    "d": 0,
    "e": False,
    "n": 9007199254740993,
    "f": 1.0,
    "g": 1e-7,
    "h": -0.0,
    "i": 12345678901234567890123,
    "j": 1e300,
    "k": 0.1,
    "l": [],
    "m": {"": {"": ""}},
}


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal with their types and signs, code point by code point."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
