"""A thing to fuzz, and one slice of fuzzing it: so many examples from a seed, and the smallest one that fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st


@dataclass(frozen=True)
class Target:
    """`check` raises for an example that shows something wrong. `examples` is the size of a slice of some seconds."""

    name: str
    strategy: st.SearchStrategy[Any]
    check: Callable[[Any], None]
    examples: int


@dataclass(frozen=True)
class Failure:
    """The smallest example of a slice that fails, and how."""

    target: str
    seed: int
    example: Any
    why: str


def examine(target: Target, number: int, *, examples: int | None = None) -> Failure | None:
    """Check `examples` examples (the target's own number if None) from the seed `number`; None if all are right."""
    failing: list[tuple[Any, str]] = []

    @seed(number)
    @settings(
        max_examples=examples or target.examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
    )
    @given(target.strategy)
    def one(example: Any) -> None:
        try:
            target.check(example)
        except Exception:
            failing.append((example, traceback.format_exc()))
            raise

    try:
        one()
    except Exception as failure:  # whatever is wrong with the server, and what hypothesis says of a failure that varies
        example, why = failing[-1] if failing else (None, "")
        return Failure(target.name, number, example, f"{why}{type(failure).__name__}: {failure}")
    return None
