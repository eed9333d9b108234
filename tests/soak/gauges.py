"""Memory and open files of the bridge and the worker over time, from /proc, and whether they grow."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tests.support import open_files, resident_bytes

FLAT: Final = 0.10
"""How much of growth still counts as flat."""

FEW: Final = 3
"""Open files that come and go in any process."""

STEADY: Final = 5
"""Samples whose median counts as the first or the last steady one."""

Gauge = Literal["rss", "fds"]


@dataclass(frozen=True, slots=True)
class Sample:
    """`rss` in MiB and `fds` of each process, `seconds` after the start of the soak."""

    seconds: float
    rss: Mapping[str, float]
    fds: Mapping[str, int]


def sample(seconds: float, processes: Mapping[str, int]) -> Sample:
    """What the processes, given by name and pid, use now. Raises OSError if one is gone."""
    rss = {name: resident_bytes(pid) / 1024**2 for name, pid in processes.items()}
    fds = {name: open_files(pid) for name, pid in processes.items()}
    return Sample(seconds, rss, fds)


@dataclass(frozen=True, slots=True)
class Trend:
    """The first and the last steady value of a process's gauge."""

    process: str
    gauge: Gauge
    first: float
    last: float

    @property
    def flat(self) -> bool:
        """Whether it did not grow. What shrinks is no leak."""
        allowed = self.first * FLAT
        return self.last - self.first <= (max(allowed, FEW) if self.gauge == "fds" else allowed)


def trends(samples: Sequence[Sample]) -> list[Trend]:
    """Of the samples of the steady part, in order; there has to be one."""
    found = []
    for process in samples[0].rss:
        for gauge in ("rss", "fds"):
            values = [getattr(sample, gauge)[process] for sample in samples]
            first, last = statistics.median(values[:STEADY]), statistics.median(values[-STEADY:])
            found.append(Trend(process, gauge, first, last))
    return found
