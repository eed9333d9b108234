"""The limit: what the same work costs a plain Temporal client in this process, without MCP and without a bridge."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    QueryWorkflowRequest,
)
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes, WorkflowIDReusePolicy

from bridge.identity import LOCAL
from tests.bench.sessions import ANSWER, Poll
from tests.bench.wire import ARGUMENTS
from workflows.kit.contract import (
    OWNER_ATTRIBUTE,
    STATUS_ATTRIBUTE,
    TASK_MEMO,
    TOOL_ATTRIBUTE,
    UPDATE_SIGNAL,
    VIEW_MEMO,
    VIEW_QUERY,
    TaskMemo,
)

_ENDED: Final = {
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED: "completed",
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_FAILED: "failed",
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CANCELED: "cancelled",
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED: "failed",
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: "failed",
}


class BareSession:
    """A plain client that starts `workflow` with the memo and the search attributes that the bridge starts it with.

    What it starts is a task, which a bridge reads like one of its own. It polls by describe, which is the cheapest way
    to see both the question (in the memo) and the end.
    """

    def __init__(self, client: Client, workflow: str, queue: str, arguments: Mapping[str, Any] = ARGUMENTS) -> None:
        self._client = client
        self._workflow = workflow
        self._queue = queue
        self._arguments = arguments
        self._attributes = {TOOL_ATTRIBUTE: workflow, OWNER_ATTRIBUTE: "0" * 32, STATUS_ATTRIBUTE: "working"}

    async def create(self) -> str:
        """StartWorkflow."""
        task_id = f"bare-{uuid.uuid4().hex}"
        await self._client.start_workflow(
            self._workflow,
            self._arguments,
            id=task_id,
            task_queue=self._queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            memo={TASK_MEMO: _memo(self._workflow)},
            search_attributes=TypedSearchAttributes(
                [
                    SearchAttributePair(SearchAttributeKey.for_keyword(name), text)
                    for name, text in self._attributes.items()
                ]
            ),
        )
        return task_id

    async def poll(self, task_id: str) -> Poll:
        """Describe, and the result of a task that completed."""
        described = await self.describe(task_id)
        info = described.workflow_execution_info
        if (status := _ENDED.get(info.status)) is not None:
            if status == "completed":
                await self._client.get_workflow_handle(task_id).result()
            return Poll(status, None)
        if VIEW_MEMO not in info.memo.fields:
            return Poll("working", None)
        (view,) = self._client.data_converter.payload_converter.from_payloads([info.memo.fields[VIEW_MEMO]])
        return Poll(view["status"], next(iter(view.get("inputRequests", {})), None))

    async def answer(self, task_id: str, key: str) -> None:
        """Signal."""
        update: dict[str, Any] = {"v": 1, "responses": {key: ANSWER}}
        await self._client.get_workflow_handle(task_id).signal(UPDATE_SIGNAL, update)

    async def close(self) -> None:
        """The client is shared."""

    async def describe(self, task_id: str) -> DescribeWorkflowExecutionResponse:
        """The raw call alone."""
        request = DescribeWorkflowExecutionRequest(
            namespace=self._client.namespace, execution=WorkflowExecution(workflow_id=task_id)
        )
        return await self._client.workflow_service.describe_workflow_execution(request)

    async def query(self, task_id: str) -> None:
        """The raw call alone."""
        request = QueryWorkflowRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=task_id),
            query=WorkflowQuery(query_type=VIEW_QUERY),
        )
        await self._client.workflow_service.query_workflow(request)


def _memo(tool: str) -> dict[str, Any]:
    return TaskMemo(
        tool=tool,
        owner=LOCAL.principal,
        arguments_digest="0" * 64,
        created_at=datetime.now(UTC),
        era="2026-07-28",
        client_capabilities={"elicitation": {"form": {}}},
        delivery="task",
        publish_views=True,
    ).to_json()
