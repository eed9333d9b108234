"""tools/call: every tool is a workflow, and every caller gets the same run, in the best form that it declared.

A caller that declared the Tasks extension gets a handle as soon as the start is durable. Everybody else waits: for the
result, or for a question. In 2026-07-28 a question goes out as core MRTR (`resultType: "input_required"` with a
`requestState`, sealed by the SDK's boundary) and comes back in a retry that reaches the same run. In older revisions it
goes out as a request on the call's own stream, and its answer comes as a message of its own (`bridge.older`).
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cachetools import TTLCache
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, CallToolRequestParams

from bridge.answering import shown_to
from bridge.call import Call, checked_call
from bridge.capabilities import require_askable
from bridge.catalog import Catalog
from bridge.degrade import CannotAsk, asked_request, shown_result
from bridge.dispatch import INTERRUPTED, RETRY
from bridge.errors import CallGoesOn, CallTooLong, EngineUnavailable, NoWorkerForCall, TaskNotFound
from bridge.exchange import Exchange
from bridge.gateway import Gateway
from bridge.identity import Identity
from bridge.open_tasks import TooManyOpenTasks
from bridge.places import WaitingCalls
from bridge.reader import Reader
from bridge.seal import Seal
from bridge.starts import Started, Starts
from bridge.status import Live, TaskState, Terminal
from bridge.tasks import Context, Tasks, exchange_of
from bridge.waits import Stopping, Waits
from bridge.wire import created_task
from workflows.kit.contract import Actor, TaskMemo, UpdateSignal
from workflows.kit.pages import is_consent

FIRST_STEP_SECONDS: Final = 2.0
"""How long a waiting caller's run may lie untouched before the bridge asks whether anybody polls its queue."""

HANDLES_TOLD: Final = 10_000
HANDLE_TOLD_SECONDS: Final = 600.0
"""How many runs, and how long, are remembered as having been told that their handle was given. A call that is repeated
with its creation key gives it again; were the run told each time, its owner could use up its 10,000 signals."""

OPENED_SECONDS: Final = 45.0
"""How long a call waits for answers on pages that its client's person agreed to open, before they are asked for again:
less than the minute after which many clients give up a request. Asking again shows the link again, which may be lost.
"""

AWAITED_PROGRESS: Final = 0.001
"""What is added to the progress for word of who is awaited: on the wire it must grow, and the next real report must not
be lost for it."""


class Calls:
    """The handler of tools/call."""

    def __init__(
        self,
        catalog: Catalog,
        gateway: Gateway,
        reader: Reader,
        tasks: Tasks,
        starts: Starts,
        waits: Waits,
        waiting: WaitingCalls,
        *,
        question_ids: Seal,
        longest_wait: timedelta,
    ) -> None:
        """`question_ids` seals what an answer to a request of ours is known by; `longest_wait` bounds one call."""
        self._catalog = catalog
        self._gateway = gateway
        self._reader = reader
        self._tasks = tasks
        self._starts = starts
        self._waits = waits
        self._waiting = waiting
        self._question_ids = question_ids
        self._longest_wait = longest_wait
        self._handles_told: TTLCache[str, bool] = TTLCache(HANDLES_TOLD, HANDLE_TOLD_SECONDS)

    async def call(self, context: Context, _params: CallToolRequestParams) -> dict[str, Any]:
        """tools/call. Raises MCPError, BridgeError, and Refusal (429) if too many calls of this owner wait."""
        exchange = exchange_of(context)
        try:
            result = await self._answer(context, exchange)
        except TooManyOpenTasks as full:
            result = _tool_error(str(full))  # a model can do something about it
        except MCPError as error:
            if exchange.peer.modern or error.code != MISSING_REQUIRED_CLIENT_CAPABILITY:
                raise
            result = _tool_error(error.message)  # older revisions have no such error
        return result if exchange.peer.modern else shown_result(result)

    async def _answer(self, context: Context, exchange: Exchange) -> dict[str, Any]:
        call = checked_call(context.params or {}, self._catalog, exchange)
        if (state := call.state) is not None:
            call = call.of_run(state["delivery"])
            with self._waiting.waiting(exchange.owner):
                task_id = await self._resume(call, state)
                # A worker had this run before; if none answers now, the person's answer is not thrown away for it
                return await self._wait(call, task_id, patience=None)
        if problem := await call.tool.arguments_problem(call.arguments):
            return _tool_error(f"Invalid arguments: {problem}")
        if call.holds_handle_at_once:
            call, started = await self._start(call)
            if call.holds_handle_at_once:
                return await self._quick_result(call, started.task_id) or await self._handle(call, started)
            with self._waiting.waiting(exchange.owner):
                return await self._wait(call, started.task_id, patience=FIRST_STEP_SECONDS)
        with self._waiting.waiting(exchange.owner):  # before the start: a call that is refused leaves nothing behind
            call, started = await self._start(call)
            return await self._wait(call, started.task_id, patience=FIRST_STEP_SECONDS)

    async def _start(self, call: Call) -> tuple[Call, Started]:
        """Start the call's run, or find the one that an equal call has started, whose way to answer then counts."""
        started = await self._starts.start(call)
        return (call.of_run(started.memo.delivery) if started.repeated else call), started

    async def _resume(self, call: Call, state: Mapping[str, Any]) -> str:
        """The run that a sealed state belongs to, once this retry's answers to that state's questions are with it."""
        task_id: str = state["task"]

        async def abandon() -> None:
            if goes_on:
                self._starts.undo(task_id, lambda: self._end(task_id, call.exchange.caller.identity))

        if not call.repeatable:
            call.exchange.on_undelivered(abandon)
        responses = {key: response for key, response in call.responses.items() if key in state["keys"]}
        # A retry that answers nothing any more only looks where the run stands; one without questions goes on with it
        carries_on = not state["keys"]
        goes_on = carries_on or bool(responses)
        try:
            delivered = await self._tasks.deliver(task_id, responses, call.exchange.caller)
            goes_on = carries_on or delivered
        except TaskNotFound:
            # Word for word what the SDK's boundary says of a state that it cannot open
            raise MCPError(
                INVALID_PARAMS, "Invalid or expired requestState", {"reason": "invalid_request_state"}
            ) from None
        return task_id

    async def _quick_result(self, call: Call, task_id: str) -> dict[str, Any] | None:
        """The result, if the run ends within the tool's wait budget without a question; else a handle is due."""
        budget = call.tool.wait_budget.total_seconds()
        owner = call.exchange.owner
        if budget <= 0 or not self._waiting.has_room(owner):
            return None
        with suppress(TimeoutError, Stopping), self._waiting.waiting(owner):
            states = self._waits.states(task_id, call.exchange, None)
            async with asyncio.timeout(budget), aclosing(states):
                async for state in states:
                    if isinstance(state, Terminal):
                        return _result(state)
                    if state.input_requests:
                        return None
        return None

    async def _handle(self, call: Call, started: Started) -> dict[str, Any]:
        caller, state = call.exchange.caller, None
        if started.repeated:
            state = await self._reader.read(started.task_id, caller.identity)
            state = shown_to(state, caller, self._reader.rights(caller.identity, state.memo))
        await self._give_handle(call, started.task_id, started.memo)
        return created_task(started.task_id, started.memo, state)

    async def _give_handle(self, call: Call, task_id: str, memo: TaskMemo) -> None:
        """Tell a run that waited for it that its caller holds a handle from now on."""
        if memo.handle_awaited and task_id not in self._handles_told:
            actor = Actor(**call.exchange.owner.model_dump(), channel=call.exchange.caller.channel)
            signal = UpdateSignal(responses={}, actor=actor, at=datetime.now(UTC), handle=True)
            await self._gateway.signal_update(task_id, signal, tool=memo.tool)
            self._handles_told[task_id] = True

    async def _wait(self, call: Call, task_id: str, *, patience: float | None) -> dict[str, Any]:
        """The result, the next question, or the handle, whichever the run reaches first. A run that no worker takes up
        within `patience` seconds, where nobody polls its queue, is given up.
        """
        within = asyncio.timeout(self._longest_wait.total_seconds())
        try:
            async with within:
                try:
                    return await self._first_answer(call, task_id, patience)
                except TimeoutError:
                    if not await self._waits.worked_on(task_id, call.tool.queue):
                        await self._give_up(call, task_id)
                        raise NoWorkerForCall from None
                return await self._first_answer(call, task_id, None)
        except Stopping:
            if call.exchange.peer.modern:
                return _input_required(call, task_id, {})
            await self._give_up(call, task_id)
            raise MCPError(INTERNAL_ERROR, INTERRUPTED, RETRY) from None
        except TimeoutError:
            if not within.expired():
                raise
            await self._give_up(call, task_id)
            raise (CallGoesOn if call.repeatable else CallTooLong)(self._longest_wait) from None

    async def _first_answer(self, call: Call, task_id: str, patience: float | None) -> dict[str, Any]:
        """Raises TimeoutError if no worker has taken up the run within `patience` seconds."""
        exchange, reported, asked, awaited = call.exchange, -math.inf, set[str](), None
        clock = asyncio.get_running_loop().time
        opened_until, elicitations = clock() + OPENED_SECONDS, dict[str, str]()
        interval = None if exchange.progress_token is None else call.tool.poll_interval.total_seconds()
        states = self._waits.states(task_id, exchange, interval)
        async with asyncio.timeout(patience) as untouched, aclosing(states):
            async for state in states:
                await _report_completed(exchange, state, elicitations)
                if isinstance(state, Terminal):
                    hands_over = call.takes_handle and call.tool.task == "required"
                    return created_task(task_id, state.memo, state) if hands_over else _result(state)
                if state.taken_up:
                    untouched.reschedule(None)
                reported = await _report(exchange, state, reported)
                if state.awaited != awaited and (awaited := state.awaited):
                    reported = await _report_awaited(exchange, awaited, reported)
                if call.takes_handle and state.taken_up and state.phase is None:
                    await self._give_handle(call, task_id, state.memo)
                    return created_task(task_id, state.memo, state)
                if requests := state.input_requests:
                    await self._check_askable(call, task_id, requests)
                    if exchange.peer.modern and _all_opened(call, state) and clock() < opened_until:
                        continue
                    if exchange.peer.modern:
                        return _input_required(call, task_id, requests)
                    new = {key: requests[key] for key in requests if key not in asked}
                    elicitations |= await self._ask(call, task_id, new)
                    asked |= requests.keys()
        raise MCPError(INTERNAL_ERROR, "The call ended without a result")

    async def _check_askable(self, call: Call, task_id: str, requests: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises MCPError (-32021) if this client may not be asked this; its run is ended, for nobody could answer."""
        try:
            require_askable(requests, call.capabilities)
        except MCPError:
            await self._give_up(call, task_id)
            raise

    async def _ask(self, call: Call, task_id: str, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Put questions to a client of an older revision, each under an id that says where its answer belongs.

        Returns the ids of those that have an `elicitationId`, by key.
        """
        exchange, asked = call.exchange, dict[str, dict[str, Any]]()
        try:
            for key, request in requests.items():
                claims = {"task": task_id, "key": key, "method": request["method"]}
                request_id = self._question_ids.seal(claims, exchange.owner)
                asked[request_id] = asked_request(exchange.peer.version, request, request_id)
        except CannotAsk as problem:
            await self._give_up(call, task_id)
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"This client cannot be asked: {problem}") from None
        for request_id, request in asked.items():
            await exchange.request(request_id, request["method"], request["params"])
        ids = zip(requests, asked.items(), strict=True)
        return {key: request_id for key, (request_id, request) in ids if "elicitationId" in request["params"]}

    async def _give_up(self, call: Call, task_id: str) -> None:
        """End a run whose caller gets an error instead of its result, unless the caller can find it again."""
        if call.repeatable:
            return
        try:
            await self._end(task_id, call.exchange.caller.identity)
        except EngineUnavailable:
            self._starts.undo(task_id, lambda: self._end(task_id, call.exchange.caller.identity))

    async def _end(self, task_id: str, identity: Identity) -> None:
        """Ask a run to stop that nobody holds a handle of. Once one was given, e.g. to the first of two equal retries,
        only tasks/cancel ends the task.
        """
        with suppress(TaskNotFound):
            state = await self._reader.read(task_id, identity, exact=True)
            if isinstance(state, Live) and (state.memo.delivery == "result" or state.phase is not None):
                await self._starts.end(task_id, identity.principal)


def _result(state: Terminal) -> dict[str, Any]:
    """The outcome as the call's own. Raises MCPError if it is a JSON-RPC error, or there is none."""
    if state.result is not None:
        return state.result
    if state.error is not None:
        raise MCPError(state.error["code"], state.error["message"], state.error.get("data"))
    raise MCPError(INTERNAL_ERROR, "The call was cancelled")


def _input_required(call: Call, task_id: str, requests: Mapping[str, Any]) -> dict[str, Any]:
    """The questions, and where their answers belong; without questions it means "call again" (core MRTR)."""
    delivery = "task" if call.takes_handle else "result"
    state = {"task": task_id, "keys": list(requests), "delivery": delivery, "named": call.repeatable}
    asked = {"inputRequests": dict(requests)} if requests else {}
    return {"resultType": "input_required", **asked, "requestState": json.dumps(state)}


async def _report(exchange: Exchange, state: Live, reported: float) -> float:
    """Send the progress that is beyond `reported`, which it must exceed on the wire; returns how far it is now."""
    for report in state.progress:
        if report.progress > reported:
            reported = report.progress
            await exchange.progress(report.progress, report.total, report.message)
    return reported


async def _report_awaited(exchange: Exchange, whom: str, reported: float) -> float:
    """Say who else has to answer before the call goes on; a progress message is all that a waiting caller can be
    told. Returns how far the progress is now.
    """
    reported = max(reported, 0.0) + AWAITED_PROGRESS
    await exchange.progress(reported, message=whom)
    return reported


def _all_opened(call: Call, state: Live) -> bool:
    """Whether all that is asked is answered on pages, and this retry says of each that it is opened."""
    pages = state.page_forms or {}
    opened = {key for key, response in call.responses.items() if call.state is not None and is_consent(response)}
    return all(key in pages and key in opened for key in state.input_requests or ())


async def _report_completed(exchange: Exchange, state: TaskState, elicitations: dict[str, str]) -> None:
    """Tell a client of 2025-11-25 which of the elicitations in URL mode that it was sent are over, and forget them."""
    requests = state.input_requests or {} if isinstance(state, Live) else {}
    for key in [key for key in elicitations if key not in requests]:
        await exchange.notify("notifications/elicitation/complete", {"elicitationId": elicitations.pop(key)})


def _tool_error(message: str) -> dict[str, Any]:
    return {"resultType": "complete", "content": [{"type": "text", "text": message}], "isError": True}
