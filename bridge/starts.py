"""The start of a call's run, and its undoing: a run whose caller never learned of it must not go on.

Until the answer of a call has reached its client, the run is that call's work. Two kinds of calls are found again
without an answer, and are not undone: those with a creation key, which may be repeated, and, when only the connection
is lost, those of older revisions (`Exchange.left`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from bridge.call import Call
from bridge.capabilities import bounded
from bridge.catalog import Tool
from bridge.describe import Described, utc
from bridge.errors import BridgeError, EngineUnavailable, TaskNotFound, TooLarge
from bridge.exchange import Caller
from bridge.gateway import Gateway
from bridge.jsonrpc import RequestId
from bridge.open_tasks import OpenTasks, TooManyOpenTasks
from bridge.task_ids import TaskIds, random_id
from bridge.tasks import bounded_answers
from workflows.kit.contract import MAX_PAYLOAD_BYTES, Actor, Pages, Principal, TaskMemo, UpdateSignal
from workflows.kit.declaration import milliseconds

log = logging.getLogger(__name__)

CALL_LIFETIME: Final = timedelta(days=1)
"""Longest life of a run whose caller holds no handle, unless its tool says less: nobody could address it afterwards."""

UNWINDING_MARGIN: Final = timedelta(hours=1)
"""What a run has beyond its lifetime to unwind, before Temporal ends it."""

UNDO_PAUSES: Final = (0.0, 1.0, 3.0, 10.0, 30.0)
"""Seconds before each attempt to cancel a run that nobody can address."""

EARLY_CANCEL_PAUSES: Final = (0.2, 0.5, 1.0, 3.0, 10.0)
"""The same for a cancel that finds no run yet; request ids are free to invent, so at most `MAX_EARLY_CANCELS` wait."""

MAX_EARLY_CANCELS: Final = 256

REPEATED: Final = "an equal call was first"
"""Why Temporal's history says that a run was cancelled, whose creation key had another one."""

UNDO_GRACE_SECONDS: Final = 3.0
"""How long a bridge that stops waits for such cancels: one call to the engine."""


@dataclass(frozen=True, kw_only=True)
class Started:
    """The run of a call; `repeated` if an earlier call with the same creation key had started it."""

    task_id: str
    memo: TaskMemo
    repeated: bool = False


class Starts:
    """Starts runs."""

    def __init__(
        self,
        gateway: Gateway,
        ids: TaskIds,
        open_tasks: OpenTasks,
        answer_window: timedelta,
        pages: Callable[[], Pages | None] = lambda: None,
    ) -> None:
        """`answer_window` is how long a question waits for a caller without a handle, at least; `pages` are those for
        answers out of band, if there are any.
        """
        self._gateway = gateway
        self._ids = ids
        self._open_tasks = open_tasks
        self._answer_window = answer_window
        self._pages = pages
        self._starting: set[asyncio.Task[bool]] = set()
        self._undoing: set[asyncio.Task[None]] = set()

    async def start(self, call: Call) -> Started:
        """Start the run, durably, or find the one that an equal call has started.

        Raises:
            MCPError: -32602, the creation key was used for another call.
            TooManyOpenTasks: Of this owner; nothing was started.
            TooLarge, EngineUnavailable, EngineRefused
        """
        memo = self._memo(call)
        if call.creation_key is not None:
            return await self._start_once(call, memo, call.creation_key)
        await self._open_tasks.admit(memo.owner)
        session = call.exchange.peer.session
        if session is not None and not call.takes_handle:
            named = self._ids.of_request(call.exchange.owner, session, call.exchange.request_id)[0]
            if await self._start_unnamed(call, memo, named):
                return Started(task_id=named, memo=memo)
            log.info("call.request_id_reused", extra={"task_id": named})  # such a call cannot be cancelled by its id
        task_id = random_id()
        await self._start_unnamed(call, memo, task_id)
        return Started(task_id=task_id, memo=memo)

    async def cancel_request(self, request_id: RequestId, caller: Caller) -> None:
        """Cancel the run of a call of an older revision (`notifications/cancelled`), whichever replica serves it.

        Raises:
            EngineRefused
        """
        if caller.peer.session is None:
            return
        ids = self._ids.of_request(caller.owner, caller.peer.session, request_id)
        try:
            await self._cancel_any(ids, caller.owner)
        except (TaskNotFound, EngineUnavailable):
            # It may have overtaken the call that it is meant for, and its client will not send it again
            if len(self._undoing) < MAX_EARLY_CANCELS:
                self.undo(ids[0], lambda: self._cancel_any(ids, caller.owner), EARLY_CANCEL_PAUSES)

    async def _cancel_any(self, ids: Sequence[str], owner: Principal) -> None:
        """Raises TaskNotFound if there is no run of any of these ids."""
        found = 0
        for task_id in ids:
            with suppress(TaskNotFound):
                await self._cancel(task_id, owner)
                found += 1
        if not found:
            raise TaskNotFound

    async def end(self, task_id: str, owner: Principal) -> None:
        """Ask a run to stop, if there is one.

        Raises:
            EngineUnavailable, EngineRefused
        """
        with suppress(TaskNotFound):
            await self._cancel(task_id, owner)

    async def _cancel(self, task_id: str, owner: Principal) -> None:
        await self._gateway.request_cancel(task_id, self._gateway.owner_hash(owner))

    def undo(self, task_id: str, cancel: Callable[[], Awaitable[None]], pauses: Sequence[float] = UNDO_PAUSES) -> None:
        """Have `cancel` end a run whose caller does not get its result, also through an outage, and without waiting
        for it: after each of `pauses`, in seconds, until it does.
        """
        undoing = asyncio.create_task(_insistently(task_id, cancel, pauses))
        self._undoing.add(undoing)
        undoing.add_done_callback(self._undoing.discard)

    def _memo(self, call: Call) -> TaskMemo:
        tool = call.tool
        encoded = json.dumps(call.arguments, sort_keys=True, ensure_ascii=False).encode()
        if len(encoded) > MAX_PAYLOAD_BYTES:
            raise TooLarge
        lifetime = tool.lifetime
        if not call.takes_handle:
            lifetime = min(lifetime or CALL_LIFETIME, CALL_LIFETIME)
        window = max(self._answer_window, tool.answer_window or timedelta(0))
        return TaskMemo(
            tool=tool.name,
            owner=call.exchange.owner,
            arguments_digest=hashlib.sha256(encoded).hexdigest(),
            created_at=datetime.now(UTC),
            era=call.exchange.peer.version,
            client_capabilities=bounded(call.capabilities),
            delivery="task" if call.takes_handle else "result",
            lifetime_ms=None if lifetime is None else milliseconds(lifetime),
            answer_window_ms=None if call.takes_handle and not call.awaits_handle else milliseconds(window),
            handle_awaited=True if call.awaits_handle else None,
            poll_interval_ms=milliseconds(tool.poll_interval),
            pages=self._pages(),
            publish_views=True,
        )

    async def _start_once(self, call: Call, memo: TaskMemo, creation_key: str) -> Started:
        responses = bounded_answers(call.responses)  # before the start: they are sent after it
        ids = self._ids.of_creation_key(memo.owner, creation_key)
        rotating = len(ids) > 1
        # The second look sees all that was started before what the first one saw
        if rotating and await self._first_of(ids) and (first := await self._first_of(ids)):
            return _repeated(first, memo)
        try:
            await self._open_tasks.admit(memo.owner)
        except TooManyOpenTasks:
            if first := await self._first_of(ids):
                return _repeated(first, memo)
            raise
        started = await self._launch(call, memo, ids[0], None)
        # Replicas whose first keys differ may have started one each: all look, and agree
        first = await self._first_of(ids) if rotating else None
        if not started:
            self._open_tasks.withdraw(memo.owner)
            return _repeated(first or await self._gateway.describe(ids[0]), memo)
        if first is not None and first.task_id != ids[0]:
            await self._gateway.request_cancel(ids[0], REPEATED)
            return _repeated(first, memo)
        if responses:  # not with the start: to a run that is there already they would be delivered as well
            await self._gateway.signal_update(ids[0], _offer(call, memo), tool=memo.tool)
        return Started(task_id=ids[0], memo=memo)

    async def _first_of(self, ids: Sequence[str]) -> Described | None:
        """Of the tasks that have these ids, the one that Temporal started first: whoever looked before another one was
        started has seen this one.
        """
        found = list[tuple[datetime, str, Described]]()
        for task_id in ids:
            with suppress(TaskNotFound):
                run = await self._gateway.describe(task_id)
                if run.memo is not None:
                    found.append((await self._began_at(run, run.memo), task_id, run))
        return min(found)[-1] if found else None

    async def _began_at(self, run: Described, memo: TaskMemo) -> datetime:
        """When the first run of the task was started, by Temporal's clock; by the bridge's if retention deleted it."""
        if run.first_of_chain:
            return run.started_at
        try:
            return (await self._gateway.describe(run.task_id, run.first_run_id)).started_at
        except TaskNotFound:
            return utc(memo.created_at)

    async def _start_unnamed(self, call: Call, memo: TaskMemo, task_id: str) -> bool:
        """Start the run, and see to it that it ends if the client leaves before it has its answer."""
        # A task of its own: a client that leaves in the middle must not leave a run that may or may not have been
        # started
        starting = asyncio.create_task(
            self._launch(call, memo, task_id, _offer(call, memo) if call.responses else None)
        )
        self._starting.add(starting)
        starting.add_done_callback(self._began)

        async def cancel() -> None:
            with suppress(BridgeError):
                await asyncio.shield(starting)
            # An id that a client can name may be that of an earlier run
            if (await self._gateway.describe(task_id)).memo == memo:
                await self._cancel(task_id, memo.owner)

        async def abandon() -> None:
            self.undo(task_id, cancel)

        call.exchange.on_undelivered(abandon)
        try:
            return await asyncio.shield(starting)
        except EngineUnavailable:
            log.warning("call.start_unconfirmed", extra={"task_id": task_id})
            self.undo(task_id, cancel)
            raise

    def _began(self, starting: asyncio.Task[bool]) -> None:
        self._starting.discard(starting)
        if not starting.cancelled():
            starting.exception()  # whose caller has left: nobody else will ask

    async def _launch(self, call: Call, memo: TaskMemo, task_id: str, signal: UpdateSignal | None) -> bool:
        return await self._gateway.start(
            task_id=task_id,
            workflow_type=call.tool.workflow_type,
            task_queue=call.tool.queue,
            arguments=call.tool.start_arguments(call.arguments),
            memo=memo,
            title=call.tool.title,
            execution_timeout=execution_timeout(call.tool, memo),
            signal=signal,
        )

    async def close(self) -> None:
        """Let starts and cancels that are on their way arrive; what an outage holds back ends by its own bounds."""
        if under_way := self._starting | self._undoing:
            await asyncio.wait(under_way, timeout=UNDO_GRACE_SECONDS)
        for undoing in self._undoing:
            undoing.cancel()
        await asyncio.gather(*self._undoing, return_exceptions=True)


async def _insistently(task_id: str, cancel: Callable[[], Awaitable[None]], pauses: Sequence[float]) -> None:
    for pause in pauses:
        await asyncio.sleep(pause)
        try:
            await cancel()
        except BridgeError as error:  # not found: what was sent may still arrive
            log.info("call.undo", extra={"task_id": task_id, "outcome": type(error).__name__})
        else:
            return


def _repeated(run: Described, wanted: TaskMemo) -> Started:
    memo = run.memo
    if memo is None or (memo.tool, memo.arguments_digest) != (wanted.tool, wanted.arguments_digest):
        raise MCPError(
            INVALID_PARAMS,
            "The creation key was used before, for a call with another tool or other arguments; use a new one",
            {"reason": "creation_key_reused"},
        )
    return Started(task_id=run.task_id, memo=memo, repeated=True)


def _offer(call: Call, memo: TaskMemo) -> UpdateSignal:
    actor = Actor(**memo.owner.model_dump(), channel=call.exchange.caller.channel)
    return UpdateSignal(responses=call.responses, actor=actor, at=memo.created_at, offered=True)


def execution_timeout(tool: Tool, memo: TaskMemo) -> timedelta | None:
    """A backstop for runs that no worker reaches; workflows that are not the kit's keep no time of their own."""
    unnamed = memo.delivery == "result"
    bounds = [memo.lifetime_ms, memo.answer_window_ms if tool.foreign and unnamed else None]
    shortest = min((timedelta(milliseconds=bound) for bound in bounds if bound is not None), default=None)
    return shortest if shortest is None or tool.foreign else shortest + UNWINDING_MARGIN
