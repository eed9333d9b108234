"""Every RPC to Temporal.

What comes out is a frozen value or a `BridgeError`; nothing outside this package sees an RPC error. What goes in is
bounded (`bridge.connection`).

Starts, signals and cancels use the SDK's high-level calls, so that a client's interceptors (tracing) see them; reads
use the raw stub, which neither raises on unknown enum values nor retries behind our back.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from cachetools import LRUCache
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import HistoryEventFilterType, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryReverseRequest,
)
from temporalio.client import Client
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode

from bridge.attributes import SearchAttributes
from bridge.closed import Closed, closed
from bridge.connection import ATTEMPT, Connection
from bridge.describe import Described, described
from bridge.errors import TaskNotFound
from bridge.events import Event, told
from bridge.follow import Follower
from bridge.payloads import encoded
from bridge.query import TIMED_OUT, Answer, ask_view
from bridge.turnover import worked_in
from workflows.kit.contract import (
    OWNER_ATTRIBUTE,
    STATUS_ATTRIBUTE,
    TASK_MEMO,
    TOOL_ATTRIBUTE,
    UPDATE_SIGNAL,
    Principal,
    TaskMemo,
    UpdateSignal,
)

logger = logging.getLogger(__name__)

START_ATTEMPT: Final = timedelta(seconds=1.4)
"""Two attempts of a start fit into one call."""

COUNT: Final = timedelta(seconds=1)
"""For one attempt: callers may wait for it, and need not know the outcome."""

RETENTION_SECONDS: Final = 3600.0

RUN_CACHE_BYTES: Final = 32 * 1024 * 1024
"""Of answers to describes and what was made of them, those used latest."""

_OBJECT_FACTOR: Final = 4
_OBJECT_BYTES: Final = 3_000
"""What a run is remembered with takes a few times its message in memory, and what is made of it something besides."""

LATEST_EVENTS: Final = 200
"""Read to see which workflow tasks of a busy run ended lately; the last two are enough."""

_TOOL: Final = SearchAttributeKey.for_keyword(TOOL_ATTRIBUTE)
_OWNER: Final = SearchAttributeKey.for_keyword(OWNER_ATTRIBUTE)
_STATUS: Final = SearchAttributeKey.for_keyword(STATUS_ATTRIBUTE)

MAX_SUMMARY_BYTES: Final = 150
"""The summary shown in Temporal's UI; the documented limit is 400 bytes for the whole payload, also when encrypted."""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A part of a run's history: what its events tell, how many they are, and the token of the next page, if any."""

    events: tuple[Event, ...]
    read: int
    token: bytes


class _Known:
    """An answer of Temporal, what was made of it, and what both take."""

    __slots__ = ("response", "run", "size")

    def __init__(self, response: DescribeWorkflowExecutionResponse, run: Described) -> None:
        self.response = response
        self.run = run
        self.size = response.ByteSize() * _OBJECT_FACTOR + _OBJECT_BYTES


class Gateway:
    """The bridge's connection to one Temporal namespace. Bound to the event loop that made it."""

    def __init__(self, connection: Connection, owner_key: bytes, unencrypted: Callable[[str], bool | None]) -> None:
        self._connection = connection
        self._client = connection.client
        self._owner_key = owner_key
        self._unencrypted = unencrypted
        self._attributes = SearchAttributes(connection.client)
        self._retention: tuple[float, timedelta] | None = None
        self._runs: LRUCache[tuple[str, str], _Known] = LRUCache(RUN_CACHE_BYTES, getsizeof=lambda known: known.size)

    @classmethod
    async def connect(
        cls,
        connect_config: Mapping[str, Any],
        *,
        owner_key: bytes,
        data_converter: DataConverter = pydantic_data_converter,
        unencrypted: Callable[[str], bool | None] = lambda _tool: False,
        runtime: Runtime | None = None,
        **options: Any,
    ) -> Self:
        """A gateway that connects at its first call.

        `connect_config` is what `temporalio.envconfig` loads; `owner_key` keys the owner's hash in search attributes;
        `unencrypted` says for which tools nothing is encrypted, since their workers have no codec, and None of a tool
        that it does not know; `options` go to the clients unchanged (interceptors, plugins).
        """
        return cls(await Connection.open(connect_config, data_converter, runtime, **options), owner_key, unencrypted)

    async def start(
        self,
        *,
        task_id: str,
        workflow_type: str,
        task_queue: str,
        arguments: Sequence[Any],
        memo: TaskMemo,
        title: str | None = None,
        execution_timeout: timedelta | None = None,
        signal: UpdateSignal | None = None,
    ) -> bool:
        """Start the run of a new task, durably, with these positional arguments; `signal` is delivered with its first
        workflow task.

        An attempt whose fate is unknown is repeated once: an id starts one run at most, whatever became of the first
        attempt.

        Returns:
            Whether this call started the run; False if the id was in use before.

        Raises:
            TooLarge: The arguments or the signal exceed a limit.
            EngineUnavailable, EngineRefused: No run was started, as far as is known.
        """
        client = self._writing_to(memo.tool)
        converter = client.data_converter
        encoded_arguments = [encoded(converter, argument) for argument in arguments]
        signalled = [encoded(converter, signal.to_json())] if signal else []
        attributes = None
        if await self._attributes.available():
            attributes = self._search_attributes(memo)

        async def attempt() -> None:
            await client.start_workflow(
                workflow_type,
                args=encoded_arguments,
                id=task_id,
                task_queue=task_queue,
                execution_timeout=execution_timeout,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                # A signal cannot be sent with a start that must fail on a running one; a new id has none.
                id_conflict_policy=WorkflowIDConflictPolicy.UNSPECIFIED if signal else WorkflowIDConflictPolicy.FAIL,
                memo={TASK_MEMO: memo.to_json()},
                search_attributes=attributes,
                static_summary=_summary(title) if title else None,
                start_signal=UPDATE_SIGNAL if signal else None,
                start_signal_args=signalled,
                rpc_timeout=START_ATTEMPT,
            )

        found = False
        async with self._connection.bounded("start"):
            try:
                await attempt()
            except WorkflowAlreadyStartedError:
                return False
            except RPCError as error:
                if attributes is not None and self._attributes.refused(error):
                    attributes = None
                elif error.status not in _AMBIGUOUS:
                    raise
                try:
                    await attempt()
                except WorkflowAlreadyStartedError:
                    found = True
                    logger.info("start.found_after_retry", extra={"task_id": task_id})
        # Either the first attempt's run, or one that was there before: an id that a client can name may be in use
        return not found or (await self.describe(task_id)).memo == memo

    def _search_attributes(self, memo: TaskMemo) -> TypedSearchAttributes:
        return TypedSearchAttributes(
            [
                SearchAttributePair(_TOOL, memo.tool),
                SearchAttributePair(_OWNER, self.owner_hash(memo.owner)),
                SearchAttributePair(_STATUS, "working"),
            ]
        )

    def _writing_to(self, tool: str) -> Client:
        """The client for what a tool's worker reads."""
        return self._connection.plain if self._unencrypted(tool) else self._client

    def owner_hash(self, owner: Principal) -> str:
        """`owner` as the search attribute shows it: search attributes are plain text to everybody who may list."""
        return hmac.new(self._owner_key, owner.identity.encode(), hashlib.sha256).hexdigest()[:32]

    async def describe(self, task_id: str, run_id: str = "") -> Described:
        """One consistent read of the task's latest run, or of the run named: the same object as the last time, for as
        long as Temporal answers the same.

        Raises:
            TaskNotFound: Temporal knows no such run.
            EngineUnavailable, EngineRefused: It could not be asked.
        """
        if not _is_workflow_id(task_id):
            raise TaskNotFound
        request = DescribeWorkflowExecutionRequest(
            namespace=self._client.namespace, execution=WorkflowExecution(workflow_id=task_id, run_id=run_id)
        )
        async with self._connection.bounded("describe"):
            response = await self._client.workflow_service.describe_workflow_execution(
                request, retry=True, timeout=ATTEMPT
            )
        known = self._runs.get((task_id, run_id))
        if known is None or known.response != response:
            known = _Known(response, await described(response, self._connection.payloads(task_id), task_id))
            if known.size <= RUN_CACHE_BYTES:
                self._runs[task_id, run_id] = known
        return known.run

    async def query_view(self, task_id: str, run_id: str) -> Answer:
        """The view of a running run, from its workflow; at most `QUERY_SECONDS`.

        Raises:
            Busy, NotOpen, NoWorker, NoUsableView: There is none, and why.
            EngineUnavailable: Temporal could not be asked.
        """
        return await ask_view(self._connection, task_id, run_id)

    async def signal_update(self, task_id: str, update: UpdateSignal, *, tool: str) -> bool:
        """Deliver answers to the latest run of a task of `tool`; durable when this returns, with or without a worker.

        Returns:
            Whether they were delivered; False if the task is closed, where nothing is outstanding.

        Raises:
            TaskNotFound, TooLarge, EngineUnavailable, EngineRefused
        """
        client = self._writing_to(tool)
        if self._unencrypted(tool) is None and (await self.describe(task_id)).plain:
            client = self._connection.plain  # as the task was started: its worker need not have a codec
        argument = encoded(client.data_converter, update.to_json())
        try:
            async with self._connection.bounded("signal"):
                await client.get_workflow_handle(task_id).signal(UPDATE_SIGNAL, argument, rpc_timeout=ATTEMPT)
        except TaskNotFound:
            await self.describe(task_id)  # raises it again for a task that does not exist at all
            return False
        return True

    async def request_cancel(self, task_id: str, reason: str) -> None:
        """Ask the task's latest run to stop; a no-op for a closed one. `reason` is plain text in the history.

        Raises:
            TaskNotFound, EngineUnavailable, EngineRefused
        """
        try:
            async with self._connection.bounded("cancel"):
                await self._client.get_workflow_handle(task_id).cancel(reason=reason, rpc_timeout=ATTEMPT)
        except TaskNotFound:
            await self.describe(task_id)

    async def close_event(self, task_id: str, run_id: str) -> Closed | None:
        """How the run ended; None if it has not.

        Raises:
            TaskNotFound, EngineUnavailable, EngineRefused
        """
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=task_id, run_id=run_id),
            maximum_page_size=1,
            history_event_filter_type=HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
        )
        async with self._connection.bounded("close_event"):
            response = await self._client.workflow_service.get_workflow_execution_history(
                request, retry=True, timeout=ATTEMPT
            )
        events = response.history.events
        return await closed(events[-1], self._connection.payloads(task_id)) if events else None

    async def history_page(self, task_id: str, run_id: str, token: bytes, most: int) -> HistoryPage:
        """The run's events after `token` (empty: from the first), oldest first; about `most` of them, as Temporal
        stores them in batches.

        Raises:
            TaskNotFound, EngineUnavailable, EngineRefused
        """
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=task_id, run_id=run_id),
            maximum_page_size=most,
            next_page_token=token,
        )
        async with self._connection.bounded("history"):
            response = await self._client.workflow_service.get_workflow_execution_history(
                request, retry=True, timeout=ATTEMPT
            )
        payloads = self._connection.payloads(task_id)
        events = [await told(event, payloads, task_id) for event in response.history.events]
        return HistoryPage(tuple(event for event in events if event is not None), len(events), response.next_page_token)

    async def worked_in(self, task_id: str, run_id: str, since: int, until: int) -> bool:
        """See `bridge.turnover.worked_in`; the run's latest events decide.

        Raises:
            TaskNotFound, EngineUnavailable, EngineRefused
        """
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=task_id, run_id=run_id),
            maximum_page_size=LATEST_EVENTS,
        )
        async with self._connection.bounded("history"):
            response = await self._client.workflow_service.get_workflow_execution_history_reverse(
                request, retry=True, timeout=ATTEMPT
            )
        return worked_in(reversed(response.history.events), since, until)

    def follower(self, task_id: str, slots: AbstractAsyncContextManager[Any]) -> Follower:
        """See `bridge.follow`."""
        return Follower(self._connection, self.describe, task_id, slots)

    async def polled_since(self, queue: str, moment: datetime) -> bool:
        """Whether a worker has asked `queue` for workflow tasks since `moment`; an idle one asks at least once a
        minute.

        Raises:
            EngineUnavailable, EngineRefused
        """
        request = DescribeTaskQueueRequest(
            namespace=self._connection.client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        async with self._connection.bounded("describe_task_queue"):
            response = await self._connection.client.workflow_service.describe_task_queue(
                request, retry=True, timeout=ATTEMPT
            )
        return any(poller.last_access_time.ToDatetime(tzinfo=UTC) >= moment for poller in response.pollers)

    async def count_open(self, owner: Principal) -> int | None:
        """How many tasks of an owner are open, as Temporal's visibility has it, which lags behind a little; None if
        they do not carry their owner, because the search attributes are not registered.

        Raises:
            EngineUnavailable, EngineRefused
        """
        if not await self._attributes.available():
            return None
        request = CountWorkflowExecutionsRequest(
            namespace=self._client.namespace,
            query=f"{OWNER_ATTRIBUTE} = '{self.owner_hash(owner)}' AND ExecutionStatus = 'Running'",
        )
        async with self._connection.bounded("count", COUNT.total_seconds()):
            response = await self._client.workflow_service.count_workflow_executions(request, timeout=COUNT)
        return response.count

    async def retention(self) -> timedelta:
        """How long the namespace keeps a closed run; asked at most once an hour.

        Raises:
            EngineUnavailable, EngineRefused
        """
        now = asyncio.get_running_loop().time()
        if self._retention is None or now >= self._retention[0]:
            self._retention = (now + RETENTION_SECONDS, await self._namespace_retention())
        return self._retention[1]

    async def check(self) -> None:
        """Whether Temporal answers for our namespace now.

        Raises:
            EngineUnavailable, EngineRefused
        """
        await self._namespace_retention()

    async def _namespace_retention(self) -> timedelta:
        async with self._connection.bounded("describe_namespace"):
            response = await self._client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=self._client.namespace), retry=True, timeout=ATTEMPT
            )
        return response.config.workflow_execution_retention_ttl.ToTimedelta()


MAX_ID_BYTES: Final = 1000
"""Temporal's limit; it refuses to look for a longer id, and for an empty one, as an invalid request."""


def _summary(title: str) -> str:
    return title.encode("utf-8", "replace")[:MAX_SUMMARY_BYTES].decode("utf-8", "ignore")


def _is_workflow_id(task_id: str) -> bool:
    return 0 < len(task_id.encode("utf-8", "replace")) <= MAX_ID_BYTES and task_id.isprintable()


_AMBIGUOUS: Final = TIMED_OUT | {RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNKNOWN, RPCStatusCode.INTERNAL}
