"""tools/call: every tool is a workflow, and every caller gets the same run, in the best form that it declared.

A caller that declared the Tasks extension gets a handle as soon as the start is durable. Everybody else waits: for the
result, or for a question, which goes out as core MRTR (`resultType: "input_required"` with a `requestState`, sealed by
the SDK's boundary) and comes back in a retry that reaches the same run. Until the answer of this call has reached the
client, the run is its call's work: a client that leaves cancels it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolRequestParams

from bridge.capabilities import bounded, declared_capabilities, declares_tasks, require, require_askable, require_tasks
from bridge.catalog import Catalog, Tool
from bridge.errors import BridgeError, EngineUnavailable, NoWorkerForCall, TaskNotFound, TooLarge
from bridge.exchange import Exchange
from bridge.gateway import Gateway
from bridge.reader import Reader
from bridge.status import Live, TaskState, Terminal
from bridge.tasks import Context, Tasks, exchange_of
from bridge.wire import created_task
from workflows.kit.contract import MAX_PAYLOAD_BYTES, Actor, Principal, TaskMemo, UpdateSignal
from workflows.kit.declaration import milliseconds

log = logging.getLogger(__name__)

TASK_ID_PREFIX: Final = "task-"
TASK_ID_BYTES: Final = 16
"""128 random bits: ids are unguessable, and header-safe ASCII because they travel in `Mcp-Name`."""

CALL_LIFETIME: Final = timedelta(days=1)
"""Longest life of a run whose caller holds no handle, unless its tool says less: nobody could address it afterwards."""

UNWINDING_MARGIN: Final = timedelta(hours=1)
"""What a run has beyond its lifetime to unwind, before Temporal ends it."""

FIRST_STEP_SECONDS: Final = 2.0
"""How long a waiting caller's run may lie untouched before the bridge asks whether anybody polls its queue."""

OUTAGE_PAUSE_SECONDS: Final = 1.0

UNDO_PAUSES: Final = (0.0, 1.0, 3.0, 10.0, 30.0)
"""Seconds before each attempt to cancel a run that nobody can address."""

UNDO_GRACE_SECONDS: Final = 3.0
"""How long a bridge that stops waits for such cancels: one call to the engine."""

_END: Final = object()


@dataclass(frozen=True, kw_only=True)
class Call:
    """One tools/call, checked."""

    tool: Tool
    arguments: dict[str, Any]
    responses: dict[str, Any]
    state: str | None
    exchange: Exchange
    capabilities: Mapping[str, Any]
    takes_handle: bool
    era: str


class Calls:
    """The handler of tools/call."""

    def __init__(
        self, catalog: Catalog, gateway: Gateway, reader: Reader, tasks: Tasks, answer_window: timedelta
    ) -> None:
        """`answer_window` is how long a question waits for a caller without a handle, at least."""
        self._catalog = catalog
        self._gateway = gateway
        self._reader = reader
        self._tasks = tasks
        self._answer_window = answer_window
        self._undoing: set[asyncio.Task[None]] = set()

    async def call(self, context: Context, _params: CallToolRequestParams) -> dict[str, Any]:
        """tools/call. Raises MCPError and BridgeError."""
        call = self._checked(context)
        if call.state is not None:
            # A worker had this run before; if none answers now, the person's answer is not thrown away for it
            return await self._first_answer(call, await self._resume(call, call.state), patience=None)
        if problem := call.tool.arguments_problem(call.arguments):
            return _tool_error(f"Invalid arguments: {problem}")
        memo = self._memo(call)
        task_id = await self._start(call, memo)
        if call.takes_handle and not call.tool.asks_before_handle:
            return await self._quick_result(call, task_id) or created_task(task_id, memo)
        return await self._wait(call, task_id)

    def _checked(self, context: Context) -> Call:
        """Raises MCPError: no such tool (-32602), or the client cannot be served with what it declared (-32021)."""
        params = context.params or {}
        tool = self._catalog.get(params["name"])
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params['name']}")
        capabilities = declared_capabilities(params)
        if tool.task == "required":
            require_tasks(capabilities)
        require(tool.client_capabilities, capabilities)
        return Call(
            tool=tool,
            arguments=dict(params.get("arguments") or {}),
            responses=dict(params.get("inputResponses") or {}),
            state=params.get("requestState"),
            exchange=exchange_of(context),
            capabilities=capabilities,
            takes_handle=declares_tasks(capabilities) and tool.task != "never",
            era=context.protocol_version,
        )

    def _memo(self, call: Call) -> TaskMemo:
        tool = call.tool
        encoded = json.dumps(call.arguments, sort_keys=True, ensure_ascii=False).encode()
        if len(encoded) > MAX_PAYLOAD_BYTES:
            raise TooLarge
        lifetime = tool.lifetime
        if not call.takes_handle:
            lifetime = min(lifetime or CALL_LIFETIME, CALL_LIFETIME)
        addressable = call.takes_handle and not tool.asks_before_handle
        window = max(self._answer_window, tool.answer_window or timedelta(0))
        return TaskMemo(
            tool=tool.name,
            owner=call.exchange.owner,
            arguments_digest=hashlib.sha256(encoded).hexdigest(),
            created_at=datetime.now(UTC),
            era=call.era,
            client_capabilities=bounded(call.capabilities),
            delivery="task" if call.takes_handle else "result",
            lifetime_ms=None if lifetime is None else milliseconds(lifetime),
            answer_window_ms=None if addressable else milliseconds(window),
            poll_interval_ms=milliseconds(tool.poll_interval),
        )

    async def _start(self, call: Call, memo: TaskMemo) -> str:
        """Start the run, and see to it that it ends if the client leaves before it has its answer."""
        task_id = TASK_ID_PREFIX + secrets.token_hex(TASK_ID_BYTES)
        lifetime = None if memo.lifetime_ms is None else timedelta(milliseconds=memo.lifetime_ms)
        actor = Actor(**memo.owner.model_dump(), channel=call.exchange.channel)
        offer = UpdateSignal(responses=call.responses, actor=actor, at=memo.created_at, offered=True)
        # A task of its own: a client that leaves in the middle must not leave a run that may or may not have been
        # started
        starting = asyncio.create_task(
            self._gateway.start(
                task_id=task_id,
                workflow_type=call.tool.workflow_type,
                task_queue=call.tool.queue,
                arguments=call.arguments,
                memo=memo,
                title=call.tool.title,
                execution_timeout=None if lifetime is None else lifetime + UNWINDING_MARGIN,
                signal=offer if call.responses else None,
            )
        )

        async def abandon() -> None:
            with suppress(BridgeError):
                await starting
            self._undo(task_id, memo.owner)

        call.exchange.on_undelivered(abandon)
        try:
            await asyncio.shield(starting)
        except EngineUnavailable:
            log.warning("call.start_unconfirmed", extra={"task_id": task_id})
            self._undo(task_id, memo.owner)
            raise
        return task_id

    def _undo(self, task_id: str, owner: Principal) -> None:
        """Cancel a run that nobody will ever learn the id of, if there is one, also through an outage."""
        undoing = asyncio.create_task(self._cancel_unnamed(task_id, owner))
        self._undoing.add(undoing)
        undoing.add_done_callback(self._undoing.discard)

    async def _cancel_unnamed(self, task_id: str, owner: Principal) -> None:
        for pause in UNDO_PAUSES:
            await asyncio.sleep(pause)
            try:
                await self._gateway.request_cancel(task_id, self._gateway.owner_hash(owner))
            except BridgeError as error:  # not found: what was sent may still arrive
                log.info("call.undo", extra={"task_id": task_id, "outcome": type(error).__name__})
            else:
                return

    async def close(self) -> None:
        """Let cancels that are on their way arrive; what an outage holds back goes on until it ends by itself."""
        if self._undoing:
            await asyncio.wait(self._undoing, timeout=UNDO_GRACE_SECONDS)
        for undoing in self._undoing:
            undoing.cancel()
        await asyncio.gather(*self._undoing, return_exceptions=True)

    async def _resume(self, call: Call, state: str) -> str:
        """The run that `state`, unsealed, belongs to, once this retry's answers are with it."""
        task_id: str = json.loads(state)["task"]

        async def abandon() -> None:
            state = await self._reader.read(task_id, call.exchange.owner)
            # Once a handle was given, e.g. to the first of two equal retries, only tasks/cancel ends the task
            if isinstance(state, Live) and (state.memo.delivery == "result" or state.phase is not None):
                await self._cancel(task_id, call.exchange.owner)

        call.exchange.on_undelivered(abandon)
        try:
            await self._tasks.deliver(task_id, call.responses, call.exchange)
        except TaskNotFound:
            # Word for word what the SDK's boundary says of a state that it cannot open
            raise MCPError(
                INVALID_PARAMS, "Invalid or expired requestState", {"reason": "invalid_request_state"}
            ) from None
        return task_id

    async def _quick_result(self, call: Call, task_id: str) -> dict[str, Any] | None:
        """The result, if the run ends within the tool's wait budget without a question; else a handle is due."""
        budget = call.tool.wait_budget.total_seconds()
        if budget <= 0:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(budget), aclosing(self._states(call, task_id)) as states:
                async for state in states:
                    if isinstance(state, Terminal):
                        return _result(state)
                    if state.input_requests:
                        return None
        return None

    async def _wait(self, call: Call, task_id: str) -> dict[str, Any]:
        """The result, the next question, or the handle; whichever the run reaches first."""
        asked_at = datetime.now(UTC)
        try:
            return await self._first_answer(call, task_id, patience=FIRST_STEP_SECONDS)
        except TimeoutError:
            if not await self._gateway.polled_since(call.tool.queue, asked_at):
                await self._cancel(task_id, call.exchange.owner)
                raise NoWorkerForCall from None
        return await self._first_answer(call, task_id, patience=None)

    async def _first_answer(self, call: Call, task_id: str, *, patience: float | None) -> dict[str, Any]:
        """As `_wait`. Raises TimeoutError if no worker has taken up the run within `patience` seconds."""
        reported = -math.inf
        async with asyncio.timeout(patience) as untouched, aclosing(self._states(call, task_id)) as states:
            async for state in states:
                if isinstance(state, Terminal):
                    hands_over = call.takes_handle and call.tool.task == "required"
                    return created_task(task_id, state.memo, state) if hands_over else _result(state)
                if state.taken_up:
                    untouched.reschedule(None)
                reported = await _report(call.exchange, state, reported)
                if call.takes_handle and state.taken_up and state.phase is None:
                    return created_task(task_id, state.memo, state)
                if state.input_requests:
                    require_askable(state.input_requests, call.capabilities)
                    return _input_required(task_id, state.input_requests)
        raise MCPError(INTERNAL_ERROR, "The call ended without a result")

    async def _states(self, call: Call, task_id: str) -> AsyncGenerator[TaskState]:
        """What the run looks like each time it may have changed; an outage is waited out, as long as the client
        does.
        """
        # Heartbeats of an activity are progress, and no change of the history
        interval = None if call.exchange.progress_token is None else call.tool.poll_interval.total_seconds()
        async with aclosing(self._gateway.changes(task_id)) as changes, aclosing(ticking(changes, interval)) as ticks:
            async for _ in ticks:
                yield await self._read(task_id, call.exchange.owner)

    async def _read(self, task_id: str, owner: Principal) -> TaskState:
        while True:
            try:
                return await self._reader.read(task_id, owner)
            except EngineUnavailable:
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)

    async def _cancel(self, task_id: str, owner: Principal) -> None:
        with suppress(TaskNotFound):
            await self._gateway.request_cancel(task_id, self._gateway.owner_hash(owner))


async def ticking(changes: AsyncIterator[None], interval: float | None) -> AsyncGenerator[None]:
    """An item for each of `changes`, and one after each `interval` seconds without."""
    following = asyncio.ensure_future(anext(changes, _END))
    try:
        while True:
            await asyncio.wait({following}, timeout=interval)
            if following.done():
                if following.result() is _END:
                    return
                following = asyncio.ensure_future(anext(changes, _END))
            yield
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def _result(state: Terminal) -> dict[str, Any]:
    """The outcome as the call's own. Raises MCPError if it is a JSON-RPC error, or there is none."""
    if state.result is not None:
        return state.result
    if state.error is not None:
        raise MCPError(state.error["code"], state.error["message"], state.error.get("data"))
    raise MCPError(INTERNAL_ERROR, "The call was cancelled")


def _input_required(task_id: str, requests: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "resultType": "input_required",
        "inputRequests": dict(requests),
        "requestState": json.dumps({"task": task_id}),
    }


async def _report(exchange: Exchange, state: Live, reported: float) -> float:
    """Send the progress that is beyond `reported`, which it must exceed on the wire; returns how far it is now."""
    for report in state.progress:
        if report.progress > reported:
            reported = report.progress
            await exchange.progress(report.progress, report.total, report.message)
    return reported


def _tool_error(message: str) -> dict[str, Any]:
    return {"resultType": "complete", "content": [{"type": "text", "text": message}], "isError": True}
