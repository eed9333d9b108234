"""Reading a task's history: over all runs of its chain, oldest first, for whoever may read the task.

Bounded by numbers of events and of characters: Temporal allows 51,200 events in one run and any number of runs.
The end of the task is the reader's word, so that a history never tells another one than `tasks/get`.
"""

from __future__ import annotations

from typing import Any, Final

from bridge.describe import Described
from bridge.errors import TaskNotFound
from bridge.events import RunClosed
from bridge.gateway import Gateway
from bridge.history import History
from bridge.identity import Identity
from bridge.reader import Reader
from bridge.status import Terminal

MAX_EVENTS: Final = 10_000
"""Events of Temporal's read for one history, from the first; the rest is not told."""

MAX_CHARS: Final = 2_000_000
"""Characters of questions in one history, which may be long ones."""

PAGE_EVENTS: Final = 100
"""Events of one request to Temporal: answers of up to 1.9 MB may be among them."""


class Histories:
    """Reads histories."""

    def __init__(
        self, gateway: Gateway, reader: Reader, *, max_events: int = MAX_EVENTS, max_chars: int = MAX_CHARS
    ) -> None:
        self._gateway = gateway
        self._reader = reader
        self._max_events = max_events
        self._max_chars = max_chars

    async def read(self, task_id: str, identity: Identity) -> tuple[dict[str, Any], bool]:
        """The history of the task as JSON data, and whether it is final.

        Raises:
            TaskNotFound: There is no such task, or not for `identity` to know of.
            EngineUnavailable, EngineRefused: Temporal could not be asked.
        """
        state = await self._reader.read(task_id, identity)
        history = History(state.memo)
        latest = await self._gateway.describe(task_id)
        walk = _Walk(self._gateway, history, latest, self._max_events, self._max_chars)
        await walk.to_the_end()
        if walk.ended and not isinstance(state, Terminal):
            state = await self._reader.read(task_id, identity)
        if isinstance(state, Terminal):
            history.end(state)
        return history.to_json(task_id, truncated=walk.truncated), isinstance(state, Terminal)


class _Walk:
    """From a task's first run to the one that decides (`bridge.chain`)."""

    def __init__(self, gateway: Gateway, history: History, latest: Described, max_events: int, max_chars: int) -> None:
        self._gateway = gateway
        self._history = history
        self._latest = latest
        self._left = max_events
        self._max_chars = max_chars
        self.truncated = False
        self.ended = False

    async def to_the_end(self) -> None:
        """Hand every event to the history, as far as they are kept and may be read."""
        run_id = self._latest.first_run_id
        while True:
            try:
                closed = await self._run(run_id)
            except TaskNotFound:  # deleted by retention, before the runs that followed it
                self.truncated = True
                if run_id == self._latest.run_id:
                    return
                run_id = self._latest.run_id
                self._history.next_run(by_reset=False)
                continue
            if closed is None or not (following := await self._following(run_id, closed)):
                self.ended = closed is not None
                return
            run_id = following
            self._history.next_run(by_reset=closed.by_reset)

    async def _run(self, run_id: str) -> RunClosed | None:
        """The close of the run once its events were handed on; None if it has none, or that is too far."""
        token = b""
        while self._left > 0 and self._history.told_chars < self._max_chars:
            page = await self._gateway.history_page(self._latest.task_id, run_id, token, min(PAGE_EVENTS, self._left))
            self._left -= page.read
            for event in page.events:
                self._history.take(event)
                if isinstance(event, RunClosed):
                    return event
            if not page.token:
                return None
            token = page.token
        self.truncated = True
        return None

    async def _following(self, run_id: str, closed: RunClosed) -> str:
        if not closed.by_reset:
            return closed.next_run_id
        described = await self._gateway.describe(self._latest.task_id, run_id)
        # Empty if an earlier run of the chain was reset while this one ran; what it led to is not to be found
        return described.reset_run_id or (self._latest.run_id if run_id != self._latest.run_id else "")
