"""When requests end that nobody ends: as the server stops, or as the credentials expire that they came with.

Both are one to a handler: it is told, may answer with what it has, and is cancelled if it does not soon. So a stream
never outlives the right to read it by more than `GRACE_SECONDS`, and the client goes on with a new request, which is
judged on its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

GRACE_SECONDS: Final = 1.0
"""What a request still has when its credentials have expired."""

_FAR: Final = 7 * 86400.0
"""Timers are not set further than that: no request lasts so long."""


class Stopping:
    """The end of one request: `soon` is set when it should answer."""

    def __init__(self) -> None:
        self.soon: Final = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def cancels(self, task: asyncio.Task[Any]) -> None:
        """Have `task` cancelled when its time is over."""
        self._task = task

    def at(self, expires_at: float) -> None:
        """End at `expires_at`, in seconds since 1970."""
        delay = min(max(0.0, expires_at - time.time()), _FAR)
        self._timer = asyncio.get_running_loop().call_later(delay, self._expire)

    def forget(self) -> None:
        """The request has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self.soon.set()
        self._timer = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._cut)

    def _cut(self) -> None:
        if self._task is not None:
            self._task.cancel()


class Ending:
    """The ends of all requests of one endpoint."""

    def __init__(self) -> None:
        self._stopped = False
        self._running = set[Stopping]()

    @contextmanager
    def of(self, expires_at: float | None) -> Iterator[Stopping]:
        """The end of a request that runs within the context."""
        stopping = Stopping()
        if self._stopped:
            stopping.soon.set()
        if expires_at is not None:
            stopping.at(expires_at)
        self._running.add(stopping)
        try:
            yield stopping
        finally:
            self._running.discard(stopping)
            stopping.forget()

    def now(self) -> None:
        """The server stops: tell all requests, those to come included."""
        self._stopped = True
        for stopping in self._running:
            stopping.soon.set()
