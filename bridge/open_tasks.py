"""How many tasks an owner may have open at a time.

Temporal counts them, by its visibility, which lags behind by about a second and serves few requests. So what is known
of an owner is the last count and what this process has started since, and a call waits for a count only if it is the
owner's first, or if the limit seems to be reached and the last count is not of this moment; others have it renewed
beside them. The limit is therefore one of about so many: replicas learn of each other's starts by counts alone.

Where nobody can count there is no limit: that Temporal's lists are away is no reason to refuse work.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from cachetools import LRUCache

from bridge.errors import BridgeError
from workflows.kit.contract import Principal

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 2.0
"""Shortest time from one count of an owner to the next, for one that has reached the limit."""

NEAR_SECONDS: Final = 5.0
"""Age at which a count is renewed for an owner that has half of the limit, or of whom the last one failed."""

FAR_SECONDS: Final = 60.0
"""The same for all others."""

WAIT_SECONDS: Final = 1.0
"""How long a call waits for a count at most; then it goes by what is known."""

COUNTS_AT_A_TIME: Final = 4
"""Of the 10 a second that a Temporal frontend allows a namespace by default, for all that lists and counts."""

MAX_OWNERS: Final = 10_000
"""Owners of whom something is remembered; the others are counted anew."""

CountOpen = Callable[[Principal], Awaitable[int | None]]
"""How many tasks of an owner are open; None if that cannot be told. Raises BridgeError."""


class TooManyOpenTasks(Exception):
    """Nothing was started. The text is for the one who calls, be it a person or a model."""

    def __init__(self, number: int, limit: int) -> None:
        super().__init__(
            f"{number} of your tasks are open, and at most {limit} may be at a time, so nothing was started. Finish or "
            "cancel some, then call again."
        )


@dataclass(slots=True)
class _Known:
    """What is known of one owner: `counted` is None while nobody could tell, `started` what came since.

    `asked` is whether a first count has ended, however it did.
    """

    counted: int | None = None
    started: int = 0
    asked: bool = False
    asked_at: float = -math.inf
    counting: asyncio.Task[None] | None = None

    @property
    def number(self) -> int:
        return 0 if self.counted is None else self.counted + self.started


class OpenTasks:
    """The limit as one process sees it. Bound to the event loop that uses it."""

    def __init__(self, count: CountOpen, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        """No limit if that is 0."""
        self._count = count
        self._limit = limit
        self._clock = clock
        self._owners: LRUCache[str, _Known] = LRUCache(MAX_OWNERS)
        self._counting: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(COUNTS_AT_A_TIME)
        self._failing = False

    async def admit(self, owner: Principal) -> None:
        """Count one more, which is about to be started; see `withdraw`.

        Raises:
            TooManyOpenTasks
        """
        if not self._limit:
            return
        known = self._owners.setdefault(owner.identity, _Known())
        if known.counting is None and self._clock() - known.asked_at >= self._patience(known):
            known.asked_at = self._clock()
            known.counting = asyncio.create_task(self._renew(owner, known), name="count-open")
            self._counting.add(known.counting)
            known.counting.add_done_callback(self._counting.discard)
        if known.counting is not None and (not known.asked or known.number >= self._limit):
            await asyncio.wait({known.counting}, timeout=WAIT_SECONDS)
        if known.number >= self._limit:
            raise TooManyOpenTasks(known.number, self._limit)
        known.started += 1

    def withdraw(self, owner: Principal) -> None:
        """It was not started after all."""
        known = self._owners.get(owner.identity)
        if known is not None and known.started:
            known.started -= 1

    async def close(self) -> None:
        """End counts that are under way."""
        for counting in self._counting:
            counting.cancel()
        await asyncio.gather(*self._counting, return_exceptions=True)

    def _patience(self, known: _Known) -> float:
        """How old the last count may become."""
        if known.number >= self._limit:
            return AGAIN_SECONDS
        return NEAR_SECONDS if known.counted is None or 2 * known.number >= self._limit else FAR_SECONDS

    async def _renew(self, owner: Principal, known: _Known) -> None:
        problem: str | None = None
        try:
            async with self._slots:
                before = known.started
                known.counted = await self._count(owner)
            known.started = max(0, known.started - before)
            if known.counted is None:
                problem = "the search attributes are not registered"
        except BridgeError as error:
            known.counted, problem = None, error.message
        finally:
            known.asked, known.counting = True, None
        self._tell(problem)

    def _tell(self, problem: str | None) -> None:
        """Log that tasks cannot be counted, once, and once that they can be again."""
        if problem and not self._failing:
            log.warning("open_tasks.not_counted", extra={"why": problem, "limit": "not enforced"})
        elif self._failing and not problem:
            log.info("open_tasks.counted_again")
        self._failing = problem is not None
