"""tasks/get, tasks/update and tasks/cancel.

Each is gated by the Tasks extension on this very request before anything is looked up, and authorised by the reader,
which answers for a task that the caller may not read as for one that does not exist. A read is pure, and many at once
take turns. An update is checked here, keys before values, because the workflow takes it without an answer. A cancel is
a request: it is recorded and acknowledged, and the status tells how it ends.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from cachetools import TTLCache
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, RequestParams
from pydantic import ConfigDict

from bridge.answering import actor_of, check_may_answer, shown_to, without_consents
from bridge.capabilities import require_askable, require_tasks
from bridge.errors import NoWorkerForCall, TooLarge
from bridge.exchange import Caller, Exchange
from bridge.gateway import Gateway
from bridge.identity import Identity
from bridge.pace import Pace
from bridge.reader import Reader
from bridge.rights import Right
from bridge.status import Live
from bridge.wire import detailed_task
from workflows.kit.contract import MAX_PAYLOAD_BYTES, Principal, UpdateSignal
from workflows.kit.questions import response_problem

logger = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Exchange]

MOST_BLIND: Final = 50
BLIND_SECONDS: Final = 600.0
BLIND_TASKS: Final = 10_000
"""How many answers one task is sent within that time of which nobody knows whether it asks for them, because nobody is
there to say so. Temporal lets a run have 10,000 signals, and then refuses the right answer, too."""

NOT_THE_OWNER: Final = " (not the task's owner)"
"""What follows the reference of whoever cancelled a task of somebody else's."""

ACKNOWLEDGED: Mapping[str, Any] = {"resultType": "complete"}


class TaskParams(RequestParams):
    """Any params: the handlers say themselves what is wrong with them, by name."""

    model_config = ConfigDict(extra="allow")


class Tasks:
    """The handlers of the three methods."""

    def __init__(self, gateway: Gateway, reader: Reader) -> None:
        self._gateway = gateway
        self._reader = reader
        self._pace = Pace()
        self._blind: TTLCache[str, int] = TTLCache(BLIND_TASKS, BLIND_SECONDS)

    async def get(self, context: Context, _params: TaskParams) -> dict[str, Any]:
        """tasks/get. Raises TooMany if too many reads of this task wait; see `Pace`."""
        capabilities = _gate(context)
        task_id, caller = task_id_of(context), exchange_of(context).caller
        with await self._pace.turn(task_id, caller.owner.identity):
            state = await self._reader.read(task_id, caller.identity)
        state = shown_to(state, caller, self._reader.rights(caller.identity, state.memo))
        if isinstance(state, Live) and state.input_requests:
            require_askable(state.input_requests, capabilities)
        return {"resultType": "complete", **detailed_task(state)}

    async def update(self, context: Context, _params: TaskParams) -> dict[str, Any]:
        """tasks/update."""
        _gate(context)
        task_id = task_id_of(context)
        responses = (context.params or {}).get("inputResponses")
        if not isinstance(responses, Mapping):
            raise MCPError(INVALID_PARAMS, "params.inputResponses must be an object of answers by key")
        await self.deliver(task_id, responses, exchange_of(context).caller)
        return dict(ACKNOWLEDGED)

    async def cancel(self, context: Context, _params: TaskParams) -> dict[str, Any]:
        """tasks/cancel."""
        _gate(context)
        await self.stop(task_id_of(context), exchange_of(context).caller.identity)
        return dict(ACKNOWLEDGED)

    async def stop(self, task_id: str, identity: Identity) -> None:
        """Ask the task to stop, if it has not ended.

        Raises:
            BridgeError: No such task for this caller, or not to be cancelled by them, or Temporal is away.
        """
        state = await self._reader.read(task_id, identity, Right.CANCEL)
        if isinstance(state, Live):
            await self._gateway.request_cancel(task_id, self._canceller(identity.principal, state))
            self._reader.acknowledged(task_id)

    async def deliver(self, task_id: str, responses: Mapping[str, Any], caller: Caller) -> bool:
        """Send the answers to outstanding questions to the task; others are ignored, as the extension wants it.

        Returns:
            Whether there were any.

        Raises:
            MCPError: -32602, naming key and reason, if an answer is not the caller's to give (`MayNotAnswer`), or does
                not fit its question; nothing is sent then.
            BridgeError: No such task for this caller, or not to be answered by them, or Temporal is away.
        """
        state = await self._reader.read(task_id, caller.identity, Right.ANSWER, exact=True)
        if not isinstance(state, Live):
            return False
        # A question that nobody can be asked about now may be what is answered; the workflow checks again and ignores
        # the rest
        known, actor = state.questions_known, actor_of(caller, state)
        check_may_answer(state, responses, actor)
        responses = without_consents(state, responses, actor)
        fitting = fitting_answers(state.input_requests or {}, responses) if known else bounded_answers(responses)
        if not fitting:
            return False
        if not known:
            if caller.identity.groups:  # which of them the questions name is not known either, and may decide
                raise NoWorkerForCall
            self._count_blind(task_id)
        update = UpdateSignal(responses=fitting, actor=actor, at=datetime.now(UTC))
        if not await self._gateway.signal_update(task_id, update, tool=state.memo.tool):
            return False
        self._reader.acknowledged(task_id, fitting)
        return True

    def _canceller(self, who: Principal, state: Live) -> str:
        """Who cancels, for Temporal's history, which is plain text; the log names whoever is not the owner."""
        reference = self._gateway.owner_hash(who)
        if who.identity == state.memo.owner.identity:
            return reference
        extra = {"task_id": state.task_id, "tool": state.memo.tool, "issuer": who.issuer, "subject": who.subject}
        logger.info("task.cancelled_by_another", extra=extra)
        return f"{reference}{NOT_THE_OWNER}"

    def _count_blind(self, task_id: str) -> None:
        """Raises NoWorkerForCall: too much was sent to this task while nobody knew whether it asks for it."""
        sent = self._blind.get(task_id, 0)
        if sent >= MOST_BLIND:
            raise NoWorkerForCall
        self._blind[task_id] = sent + 1

    async def asks(self, task_id: str, key: str, identity: Identity) -> bool:
        """Whether a question is outstanding, or may be.

        Raises:
            BridgeError: No such task for this caller, or Temporal is away.
        """
        state = await self._reader.read(task_id, identity, exact=True)
        return isinstance(state, Live) and (key in (state.input_requests or {}) or not state.questions_known)


def fitting_answers(requests: Mapping[str, Mapping[str, Any]], responses: Mapping[str, Any]) -> dict[str, Any]:
    """The responses whose keys are outstanding, all of which fit. Keys come first: what is sent under an unknown one is
    no matter.

    Raises:
        MCPError: -32602 if one does not fit its question.
        TooLarge: Together they are larger than Temporal stores.
    """
    fitting = {key: response for key, response in responses.items() if key in requests}
    for key, response in fitting.items():
        if problem := response_problem(requests[key], response):
            raise MCPError(
                INVALID_PARAMS, f"The answer to {key!r} cannot be used: {problem}", {"key": key, "reason": problem}
            )
    return bounded_answers(fitting)


def bounded_answers(responses: Mapping[str, Any]) -> dict[str, Any]:
    """The responses as they are. Raises TooLarge if together they are larger than Temporal stores."""
    if len(json.dumps(responses, ensure_ascii=False).encode()) > MAX_PAYLOAD_BYTES:
        raise TooLarge
    return dict(responses)


def task_id_of(context: Context) -> str:
    """`params.taskId`. Raises MCPError -32602 if it is not a string."""
    task_id = (context.params or {}).get("taskId")
    if not isinstance(task_id, str) or not task_id:
        raise MCPError(INVALID_PARAMS, "params.taskId must be the id of a task, a string")
    return task_id


def _gate(context: Context) -> Mapping[str, Any]:
    capabilities = exchange_of(context).peer.capabilities
    require_tasks(capabilities)
    return capabilities


def exchange_of(context: Context) -> Exchange:
    """The exchange of this request; every transport attaches one."""
    if context.request is None:
        raise RuntimeError("the transport attached no exchange")
    return context.request
