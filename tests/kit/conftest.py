"""A real Temporal dev server and a worker for the kit's test tools."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from tests.kit.reporting import Report
from tests.kit.tools import ACTIVITIES, TASKS
from workflows.kit.contract import TASK_MEMO, UPDATE_SIGNAL, VIEW_QUERY, Principal, TaskMemo, UpdateSignal

QUEUE = "kit"
RUNNER = SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules("workflows.kit"))


class Run:
    """One started task, driven as the bridge would."""

    def __init__(self, handle: WorkflowHandle[Any, Any]) -> None:
        self.handle = handle

    async def view(self) -> dict[str, Any]:
        view: dict[str, Any] = await self.handle.query(VIEW_QUERY, result_type=dict[str, Any])
        return view

    async def memo(self) -> dict[str, Any]:
        return dict(await (await self.handle.describe()).memo())

    async def in_slow_workflow_task(self) -> bool:
        """Whether a workflow task has been under way for a while."""
        raw = (await self.handle.describe()).raw_description
        pending = raw.pending_workflow_task
        busy = time.time() - pending.started_time.ToMicroseconds() / 1e6
        return raw.HasField("pending_workflow_task") and pending.HasField("started_time") and busy > 0.3

    async def update(self, responses: Any, **fields: Any) -> None:
        await self.handle.signal(UPDATE_SIGNAL, UpdateSignal(responses=responses, **fields).to_json())

    async def result(self) -> Any:
        return await self.handle.result()

    async def failure(self) -> ApplicationError:
        with pytest.raises(WorkflowFailureError) as caught:
            await self.handle.result()
        assert isinstance(caught.value.cause, ApplicationError)
        return caught.value.cause


class Tasks:
    def __init__(self, client: Client, queue: str = QUEUE) -> None:
        self.client = client
        self.queue = queue

    async def start(
        self, name: str, mode: str = "", *, steps: int = 1, signal: UpdateSignal | None = None, **memo: Any
    ) -> Run:
        fields: dict[str, Any] = {
            "tool": name,
            "owner": Principal(issuer="local", subject="tester"),
            "arguments_digest": "0",
            "created_at": datetime.now(UTC),
            "era": "2026-07-28",
            "client_capabilities": {"elicitation": {}},
            "delivery": "task",
            "publish_views": True,
            **memo,
        }
        arguments = {} if name.startswith("kit_before") else {"mode": mode, "steps": steps}
        start: dict[str, Any] = {}
        if signal:
            start = {"start_signal": UPDATE_SIGNAL, "start_signal_args": [signal.to_json()]}
        handle = await self.client.start_workflow(
            name,
            arguments,
            id=f"kit-{uuid.uuid4().hex}",
            task_queue=self.queue,
            memo={TASK_MEMO: TaskMemo(**fields).to_json()},
            **start,
        )
        return Run(handle)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def environment() -> AsyncIterator[WorkflowEnvironment]:
    async with await WorkflowEnvironment.start_local(
        data_converter=pydantic_data_converter,
        dev_server_existing_path=str(Path(sys.executable).parent / "temporal"),
        dev_server_extra_args=["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=40"],
    ) as environment:
        yield environment


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=[100, 0], ids=["cached", "replayed"])
async def tasks(environment: WorkflowEnvironment, request: pytest.FixtureRequest) -> AsyncIterator[Tasks]:
    """Started tasks run on a worker that caches them, and on one that replays every run at every step."""
    async with Worker(
        environment.client,
        task_queue=QUEUE,
        workflows=[*TASKS, Report],
        activities=ACTIVITIES,
        workflow_runner=RUNNER,
        max_cached_workflows=request.param,
        max_concurrent_workflow_task_polls=5 if request.param else 1,
    ):
        yield Tasks(environment.client)
