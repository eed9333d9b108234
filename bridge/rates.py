"""How often somebody may do something: a token bucket for each, kept as one moment, the one at which it is full again.

Requests have two buckets for each owner and process, of the same size: answers and cancels never wait for the reads of
the same owner, so that a flood, however it came about, does not lock its owner out. Callers that are not told apart,
who are all `LOCAL`, are not counted: everybody would pay for one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from cachetools import LRUCache

from bridge.identity import LOCAL, Identity
from bridge.jsonrpc import Message, Response
from bridge.too_many import TooMany

MAX_BUCKETS: Final = 10_000
"""Buckets of a kind. The one that was used longest ago is forgotten first, and with it what was taken from it."""

URGENT: Final = frozenset({"tasks/update", "tasks/cancel", "notifications/cancelled"})
"""What ends or unblocks something that goes on has the second bucket."""

_SLACK: Final = 1e-6
"""Seconds that rounding may make of a clock's time."""


class Rate:
    """`burst` times at once, and `per_second` more each second; any number if that is 0."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / per_second if per_second else 0.0
        self._depth = burst * self._interval
        self._clock = clock
        self._full_at: LRUCache[str, float] = LRUCache(MAX_BUCKETS)

    def allows(self, key: str) -> bool:
        """Whether there is one to take."""
        return not self._interval or self._one_more(key) - self._clock() <= self._depth + _SLACK

    def take(self, key: str) -> bool:
        """Take one. False if there is none, which takes nothing."""
        if not self.allows(key):
            return False
        if self._interval:
            self._full_at[key] = self._one_more(key)
        return True

    def _one_more(self, key: str) -> float:
        """When the bucket is full again if one is taken now."""
        return max(self._full_at.get(key, 0.0), self._clock()) + self._interval


class RequestRates:
    """The requests of each owner to this process."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._usual = Rate(per_second, burst, clock)
        self._urgent = Rate(per_second, burst, clock)

    def check(self, identity: Identity, *, urgent: bool) -> None:
        """Count a request.

        Raises:
            TooMany
        """
        rate = self._urgent if urgent else self._usual
        if identity.principal != LOCAL.principal and not rate.take(identity.principal.identity):
            raise TooMany("Too many requests; send them more slowly")


def is_urgent(message: Message) -> bool:
    """Whether `message` is an answer or a cancel."""
    return isinstance(message, Response) or message.method in URGENT
