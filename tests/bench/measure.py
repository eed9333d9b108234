"""What a measurement is made of, and the loop that works for some seconds and says how long each operation took."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Sample = dict[str, float]
"""Figures of one turn by name: `p50` and `p95` in milliseconds, `rate` a second, `operations`; and what the accounts
add, each per operation: `rpcs`, `rpc X` for an operation X, `cpu Y` in milliseconds for a part Y."""

Operation = Callable[[], Awaitable[object]]
Turn = Callable[[float], Awaitable[Sample]]
"""Works for about so many seconds."""

HIGHER_IS_BETTER: Final = frozenset({"rate"})


@dataclass(frozen=True)
class Contender:
    """One side of a comparison. `prepare` runs before each turn and is not measured."""

    name: str
    turn: Turn
    prepare: Operation | None = None


@dataclass(frozen=True)
class Bar:
    """`of` must reach `factor` times `against`: at most that many milliseconds, at least that many a second."""

    of: str
    figure: str
    factor: float
    against: str

    @property
    def sign(self) -> str:
        """How a ratio is held against the factor."""
        return ">=" if self.figure in HIGHER_IS_BETTER else "<="

    def met(self, ratio: float) -> bool:
        """Whether this ratio is good enough."""
        return ratio >= self.factor if self.figure in HIGHER_IS_BETTER else ratio <= self.factor


@dataclass(frozen=True)
class Comparison:
    """Contenders that do the same work, in turns of `seconds`."""

    title: str
    seconds: float
    contenders: Sequence[Contender]
    bars: Sequence[Bar] = ()


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A bar and what came out; `low` and `high` are those of any turn, if there were turns."""

    work: str
    figure: str
    bar: str
    value: float
    low: float | None = None
    high: float | None = None
    met: bool


@dataclass(frozen=True)
class Outcome:
    """What a group found: figures by row and name."""

    title: str
    rows: Mapping[str, Sample]
    verdicts: Sequence[Verdict] = ()
    notes: Sequence[str] = field(default=())


def repeated(operations: Sequence[Operation]) -> Turn:
    """A turn of as many clients as there are operations, each doing its own again and again."""

    async def turn(seconds: float) -> Sample:
        taken: list[float] = []
        start = time.perf_counter()
        end = start + seconds

        async def client(operation: Operation) -> None:
            while (began := time.perf_counter()) < end:
                await operation()
                taken.append(time.perf_counter() - began)

        async with asyncio.TaskGroup() as clients:
            for operation in operations:
                clients.create_task(client(operation))
        return summary(taken, time.perf_counter() - start)

    return turn


def summary(taken: Sequence[float], seconds: float) -> Sample:
    """The figures of operations that took so long each, and `seconds` together."""
    return {**percentiles(taken), "rate": len(taken) / seconds, "operations": float(len(taken))}


def percentiles(seconds: Sequence[float]) -> Sample:
    """p50 and p95 in milliseconds."""
    if len(seconds) < 2:
        return {"p50": seconds[0] * 1e3, "p95": seconds[0] * 1e3}
    return {"p50": statistics.median(seconds) * 1e3, "p95": statistics.quantiles(seconds, n=20)[-1] * 1e3}


def medians(samples: Sequence[Sample]) -> Sample:
    """The median of each figure; one that a turn lacks was nothing there."""
    figures = dict.fromkeys(itertools.chain.from_iterable(samples))
    return {figure: statistics.median(sample.get(figure, 0.0) for sample in samples) for figure in figures}


def verdict(bar: Bar, results: Mapping[str, Sequence[Sample]]) -> Verdict:
    """The median of the turns' ratios, and the smallest and largest. Both sides of a turn come within a minute, so a
    machine that is slow for longer is so for both, while two medians may be of different times.
    """
    mine, theirs = results[bar.of], results[bar.against]
    each = [one[bar.figure] / other[bar.figure] for one, other in zip(mine, theirs, strict=True)]
    ratio = statistics.median(each)
    return Verdict(
        work=bar.of,
        figure=bar.figure,
        bar=f"{bar.sign} {bar.factor:g} x {bar.against}",
        value=ratio,
        low=min(each),
        high=max(each),
        met=bar.met(ratio),
    )
