"""A clock that goes when it is told to."""

from __future__ import annotations


class Clock:
    """Seconds, as `time.monotonic` would have them."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
