"""A real Temporal dev server with the search attributes; a bridge side per test, and workers where a test wants one."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest_asyncio
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from bridge.describe import Described
from bridge.errors import TaskNotFound
from bridge.gateway import Gateway
from bridge.identity import Identity
from bridge.query import Answer
from bridge.reader import Reader
from bridge.status import Live, OutcomeRules, TaskState, Terminal
from bridge.watches import Watches
from tests.encryption import CONVERTER
from tests.gateway.workflows import ACTIVITIES, WORKFLOWS
from tests.support import eventually
from workflows.kit.contract import SEARCH_ATTRIBUTES, Principal, TaskMemo, UpdateSignal

OWNER = Principal(issuer="local", subject="tester", client="one")
TESTER = Identity(principal=OWNER)
OWNER_KEY = b"k" * 32
DEADLINE = 5.0
"""Seconds within which everything answers without a worker; generous, since the machine may be busy."""

SERVER_SETTINGS = (
    "frontend.WorkflowPauseEnabled=true",
    # A deletion waits for these; with the defaults it takes half a minute.
    'history.transferProcessorUpdateAckInterval="100ms"',
    'history.visibilityProcessorUpdateAckInterval="100ms"',
    'history.timerProcessorUpdateAckInterval="100ms"',
)


def rules(tool: str) -> OutcomeRules:
    """The declaration that the tests' tools share."""
    return OutcomeRules(declared_errors=frozenset({"AcmeError"}), plain_result=tool == "plain")


class CountingGateway(Gateway):
    """A real gateway that counts what a read costs."""

    describes = 0
    queries = 0
    close_reads = 0

    async def describe(self, task_id: str, run_id: str = "") -> Described:
        self.describes += 1
        return await super().describe(task_id, run_id)

    async def query_view(self, task_id: str, run_id: str) -> Answer:
        self.queries += 1
        return await super().query_view(task_id, run_id)

    async def close_event(self, task_id: str, run_id: str) -> Any:
        self.close_reads += 1
        return await super().close_event(task_id, run_id)


def asked(state: Any) -> set[str]:
    """The keys of what a live task asks."""
    assert isinstance(state, Live)
    return set(state.input_requests or ())


class Bridge:
    """One replica's gateway and reader, and a plain client beside them."""

    def __init__(self, client: Client, gateway: CountingGateway, queue: str) -> None:
        self.client = client
        self.gateway = gateway
        self.watches = Watches(gateway)
        self.reader = Reader(gateway, self.watches, rules)
        self.queue = queue

    def memo(self, **fields: Any) -> TaskMemo:
        return TaskMemo(**{
            "tool": "tool",
            "owner": OWNER,
            "arguments_digest": "0",
            "created_at": datetime.now(UTC),
            "era": "2026-07-28",
            "client_capabilities": {},
            "delivery": "task",
            **fields,
        })  # fmt: skip

    async def start(
        self, workflow: str, arguments: dict[str, Any], *, signal: UpdateSignal | None = None, **memo: Any
    ) -> str:
        task_id = f"t-{uuid.uuid4().hex}"
        assert await self.gateway.start(
            task_id=task_id,
            workflow_type=workflow,
            task_queue=self.queue,
            arguments=[arguments],
            memo=self.memo(**memo),
            title="A tool",
            signal=signal,
        )
        return task_id

    async def read(self, task_id: str, owner: Principal = OWNER, *, exact: bool = False) -> TaskState:
        async with asyncio.timeout(DEADLINE):
            return await self.reader.read(task_id, Identity(principal=owner), exact=exact)

    async def answer(self, task_id: str, *keys: str) -> bool:
        return await self.gateway.signal_update(
            task_id, UpdateSignal(responses={key: {"action": "accept", "content": {}} for key in keys}), tool="tool"
        )

    async def parked(self, task_id: str, *keys: str) -> Live:
        """The state once it asks exactly `keys`."""

        async def asks() -> Live | None:
            state = await self.read(task_id)
            asked = isinstance(state, Live) and set(state.input_requests or ()) == set(keys)
            return state if asked and isinstance(state, Live) else None

        return await eventually(asks, what=f"questions {keys}")

    async def ended(self, task_id: str) -> Terminal:
        async def ends() -> Terminal | None:
            state = await self.read(task_id)
            return state if isinstance(state, Terminal) else None

        return await eventually(ends, what="the end of the task")

    async def described(self, task_id: str) -> Described:
        return await self.gateway.describe(task_id)

    async def settled(self, task_id: str) -> Described:
        """A describe without anything in flight."""

        async def quiet() -> Described | None:
            run = await self.gateway.describe(task_id)
            return run if run.settled else None

        return await eventually(quiet, what="a settled run")

    async def reset(self, task_id: str, run_id: str, event_id: int) -> str:
        """Reset a run to its workflow task that finished with `event_id`; the new run's id."""
        response = await self.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=self.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=task_id, run_id=run_id),
                reason="a test",
                workflow_task_finish_event_id=event_id,
                request_id=uuid.uuid4().hex,
            )
        )
        return response.run_id

    async def delete(self, task_id: str) -> None:
        """Delete the task as retention would, and wait until it is gone."""
        await self.client.workflow_service.delete_workflow_execution(
            DeleteWorkflowExecutionRequest(
                namespace=self.client.namespace, workflow_execution=WorkflowExecution(workflow_id=task_id)
            )
        )

        async def gone() -> bool:
            try:
                await self.gateway.describe(task_id)
            except TaskNotFound:
                return True
            return False

        await eventually(gone, what="the deletion")

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        address = self.client.service_client.config.target_host
        async with Worker(
            await Client.connect(address, data_converter=CONVERTER),
            task_queue=self.queue,
            workflows=WORKFLOWS,
            activities=ACTIVITIES,
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
            max_heartbeat_throttle_interval=timedelta(milliseconds=100),
            default_heartbeat_throttle_interval=timedelta(milliseconds=100),
        ):
            yield


async def make_bridge(address: str, queue: str | None = None, **config: Any) -> Bridge:
    """A replica of its own, connected to `address`."""
    client = await Client.connect(address, data_converter=CONVERTER, lazy=True)
    gateway = await CountingGateway.connect(
        {"target_host": address, "namespace": "default", **config}, owner_key=OWNER_KEY, data_converter=CONVERTER
    )
    return Bridge(client, gateway, queue or f"q-{uuid.uuid4().hex}")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def temporal() -> AsyncIterator[str]:
    """The address of a dev server that all tests here share."""
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(Path(sys.executable).parent / "temporal"),
        search_attributes=[SearchAttributeKey.for_keyword(name) for name in SEARCH_ATTRIBUTES],
        dev_server_extra_args=[
            argument for setting in SERVER_SETTINGS for argument in ("--dynamic-config-value", setting)
        ],
    ) as environment:
        yield environment.client.service_client.config.target_host


@pytest_asyncio.fixture
async def bridge(temporal: str) -> AsyncIterator[Bridge]:
    """A replica without a worker."""
    bridge = await make_bridge(temporal)
    yield bridge
    await bridge.watches.close()
    await bridge.reader.close()


@pytest_asyncio.fixture
async def served(bridge: Bridge) -> AsyncIterator[Bridge]:
    """A replica and a worker on its queue."""
    async with bridge.worker():
        yield bridge


@pytest_asyncio.fixture
async def replica(temporal: str, bridge: Bridge) -> AsyncIterator[Bridge]:
    """A second replica for the same queue."""
    other = await make_bridge(temporal, bridge.queue)
    yield other
    await other.watches.close()
    await other.reader.close()
