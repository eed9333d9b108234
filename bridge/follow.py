"""A task as its history tells it, event by event.

The history is read by long poll. What a describe would show, but for heartbeats, is known from the events (while a
workflow task fails again and again, a describe counts some differently); each change of the published view, and the
end, is a moment of its own that no listener misses. What no event says (memo, chain) comes from one describe at the
start of each run. Runs are followed through continue-as-new, retries and resets of a running run; a reset copies what
was before it, and is told by its outcome alone.

An outage is waited out, with the last token; `heard_at` says since when nothing was heard. The timeout of a poll bounds
that if the network swallows everything: short for readers, who rely on what was heard last, long where only listeners
wait. It must never come near 1 s, where Temporal answers at once, about 900 times a second.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest, GetWorkflowExecutionHistoryResponse
from temporalio.service import RPCError, RPCStatusCode

from bridge.closed import Closed, closed
from bridge.connection import Connection
from bridge.describe import Described, snapshot_in
from bridge.errors import EngineUnavailable, TaskNotFound, is_connect_failure, is_namespace_missing
from bridge.payloads import Payloads
from workflows.kit.contract import VIEW_MEMO

logger = logging.getLogger(__name__)

T = TypeVar("T")

Describe = Callable[[str, str], Awaitable[Described]]

SHORT_POLL: Final = timedelta(seconds=5)
"""Of which Temporal uses about four before it answers with an empty page."""

LONG_POLL: Final = timedelta(seconds=25)
"""By then Temporal has answered: it does after 20 s at the latest."""

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0


class _Kind:
    """The types of events that are looked at; the generated enum would search for the name each time."""

    TASK_SCHEDULED: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
    TASK_COMPLETED: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ACTIVITY_SCHEDULED: Final = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    CANCEL_REQUESTED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
    PAUSED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_PAUSED
    UNPAUSED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UNPAUSED
    MEMO_CHANGED: Final = EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED


_ACTIVITY_ENDS: Final = frozenset(
    {
        EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT,
        EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED,
    }
)


@dataclass(frozen=True, slots=True)
class Moment:
    """The task after an event. `told`: the published view changed with it, or the run ended (`ended`)."""

    run: Described
    told: bool = False
    ended: Closed | None = None


@dataclass(slots=True)
class _Run:
    """One run. Its describe is ahead of the events that are still to be read, so what they tell starts empty."""

    now: Described
    payloads: Payloads

    @classmethod
    def of(cls, base: Described, payloads: Payloads) -> _Run:
        told_by_events: dict[str, Any] = {
            "history_length": 0,
            "worker_seen": False,
            "pending_task": False,
            "pending_since": None,
            "cancel_requested": False,
            "closed_at": None,
            "continued": False,
            "activities": 0,
            "heartbeat": None,
            "paused": False,
        }
        return cls(replace(base, **told_by_events), payloads)

    async def take(self, event: HistoryEvent) -> Moment:
        """The task after `event`.

        Raises:
            EngineUnavailable: What it carries cannot be opened with this replica's codec.
        """
        changes: dict[str, Any] = {"history_length": event.event_id}
        told, ended = False, None
        match event.event_type:
            case _Kind.TASK_SCHEDULED:
                changes["pending_task"] = True
            case _Kind.TASK_COMPLETED:
                # One that failed or timed out is tried again without an event, and so stays pending
                changes |= {"pending_task": False, "worker_seen": True}
            case _Kind.ACTIVITY_SCHEDULED:
                changes["activities"] = self.now.activities + 1
            case kind if kind in _ACTIVITY_ENDS:
                changes["activities"] = self.now.activities - 1
            case _Kind.CANCEL_REQUESTED:
                changes["cancel_requested"] = True
            case _Kind.PAUSED:
                changes["paused"] = True
            case _Kind.UNPAUSED:
                changes["paused"] = False
            case _Kind.MEMO_CHANGED:
                memo = event.workflow_properties_modified_event_attributes.upserted_memo.fields
                if told := VIEW_MEMO in memo:
                    changes["snapshot"] = await snapshot_in(memo, self.payloads)
            case _:
                if (ended := await closed(event, self.payloads)) is not None:
                    told = True
                    changes |= {"closed_at": ended.at, "continued": ended.ending == "continued"}
                    changes |= {"pending_task": False, "activities": 0}
        self.now = replace(self.now, **changes)
        return Moment(self.now, told, ended)


class _TokenLost(Exception):
    """The server has forgotten where a reader was."""


class Follower:
    """Follows one task."""

    def __init__(
        self, connection: Connection, describe: Describe, task_id: str, slots: AbstractAsyncContextManager[Any]
    ) -> None:
        """`describe` reads a run of the task: the one named, or the latest if the name is empty. Whoever begins to
        follow a run takes one of the `slots`, so that many do not get into each other's way.
        """
        self._client = connection.watcher
        self._payloads = connection.payloads(task_id)
        self._describe = describe
        self._task_id = task_id
        self._slots = slots
        self.patience = LONG_POLL
        """Timeout of the polls to come."""
        self.heard_at = -math.inf
        """The event loop's time at which Temporal last told what it knew; long ago while it cannot be asked."""

    async def moments(self) -> AsyncGenerator[list[Moment]]:
        """What happened since the item before, oldest first. The first item of a run ends with the task as it is now;
        an empty one says that nothing has happened for some seconds. Ends with the task.

        Raises:
            TaskNotFound: It does not exist, or not any more.
        """
        run_id: str | None = ""
        copied = False
        while run_id is not None:
            run, moments, token = await self._retried(partial(self._begin, run_id))
            held = list[Moment]()
            ended: Closed | None = None
            while True:
                held += moments
                if not (copied and run.now.pending_task):  # what was copied is still to be worked in again
                    yield _outcome(held) if copied else held
                    ended = held[-1].ended if held else None
                    held, copied = [], False
                if not token:
                    break
                try:
                    moments, token = await self._retried(partial(self._next, run, token))
                except _TokenLost:
                    await asyncio.sleep(_FIRST_PAUSE)
                    run, moments, token = await self._retried(partial(self._begin, run.now.run_id))
            run_id, copied = (_following(ended), ended.by_reset) if ended else (None, False)

    async def _begin(self, run_id: str) -> tuple[_Run, list[Moment], bytes]:
        """A run from its first event to what a describe shows of it."""
        async with self._slots:
            base = await self._describe(self._task_id, run_id)
            run, gathered, token = _Run.of(base, self._payloads), list[Moment](), b""
            while run.now.history_length < base.history_length:
                try:
                    moments, token = await self._next(run, token)
                except _TokenLost as lost:
                    raise EngineUnavailable from lost
                gathered += moments
                if not token:
                    break
        if run.now.history_length == base.history_length:
            gathered[-1] = replace(gathered[-1], run=replace(run.now, heartbeat=base.heartbeat))
        return run, gathered, token

    async def _next(self, run: _Run, token: bytes) -> tuple[list[Moment], bytes]:
        """The events after `token`, as soon as there are any, and the token after them."""
        page = await self._page(run.now.run_id, token)
        now = run.now
        try:
            moments = [await run.take(event) for event in page.history.events]
        except EngineUnavailable:
            run.now = now  # the whole page is read again
            raise
        self.heard_at = asyncio.get_running_loop().time()
        return moments, page.next_page_token

    async def _retried(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer of `ask`, through outages."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return await ask()
            except EngineUnavailable:
                self.heard_at = -math.inf
                logger.info("follow.interrupted", extra={"task_id": self._task_id})
            # Not all who follow should find Temporal back at the same moment
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - a delay
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _page(self, run_id: str, token: bytes) -> GetWorkflowExecutionHistoryResponse:
        try:
            return await self._client.workflow_service.get_workflow_execution_history(
                GetWorkflowExecutionHistoryRequest(
                    namespace=self._client.namespace,
                    execution=WorkflowExecution(workflow_id=self._task_id, run_id=run_id),
                    next_page_token=token,
                    wait_new_event=True,
                ),
                timeout=self.patience,
            )
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND and not is_namespace_missing(error):
                raise TaskNotFound from error
            if error.status is RPCStatusCode.INVALID_ARGUMENT and token:
                raise _TokenLost from error
            raise EngineUnavailable from error
        except RuntimeError as error:
            if not is_connect_failure(error):
                raise
            raise EngineUnavailable from error


def _outcome(moments: list[Moment]) -> list[Moment]:
    """What has come of all of them."""
    return [replace(moments[-1], told=True)] if moments else []


def _following(ended: Closed) -> str | None:
    """The run in which the task goes on, "" for the latest; None at its end."""
    return "" if ended.by_reset else ended.next_run_id or None
