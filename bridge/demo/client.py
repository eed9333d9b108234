"""The official client with the Tasks extension, which it lets us declare: a claim on task handles, three methods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientRequestContext
from mcp_types import (
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    EmptyResult,
    Request,
    RequestParams,
    Result,
)

ENDED: Final = frozenset({"completed", "failed", "cancelled"})
POLL_SECONDS: Final = 0.25
"""More often than the server asks for: a reader of the transcript should not wait."""


class TaskHandle(Result):
    """What a tools/call gives instead of a result."""

    result_type: Literal["task"]
    task_id: str
    status: str


class TaskState(Result):
    """What a tasks/get gives."""

    task_id: str
    status: str
    status_message: str | None = None
    input_requests: dict[str, dict[str, Any]] | None = None
    result: CallToolResult | None = None
    error: dict[str, Any] | None = None


class TaskParams(RequestParams):
    """Parameters of tasks/get and tasks/cancel."""

    task_id: str


class UpdateParams(TaskParams):
    """Parameters of tasks/update."""

    input_responses: dict[str, dict[str, Any]]


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    """Look at a task."""

    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"


class UpdateTask(Request[UpdateParams, Literal["tasks/update"]]):
    """Answer a task's questions."""

    method: Literal["tasks/update"] = "tasks/update"
    name_param = "taskId"


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    """Ask a task to stop."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    name_param = "taskId"


class TasksExtension(ClientExtension):
    """Declares the extension and accepts task handles."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Handles are taken as they are: the demonstration polls by itself."""
        return (ResultClaim(result_type="task", model=TaskHandle, resolve=self._not_resolved),)

    async def _not_resolved(self, handle: TaskHandle, context: ClaimContext) -> CallToolResult:
        raise NotImplementedError(f"{context.tool_name} gave the task {handle.task_id}, which nobody waits for here")


class TasksClient:
    """A connected client's tools, as tasks."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def tools(self) -> list[str]:
        """The names of the tools on offer."""
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def start(self, tool: str, arguments: dict[str, Any]) -> TaskHandle:
        """Call a tool that answers with a task.

        Raises:
            TypeError: It answered with something else.
        """
        answer = await self._client.session.call_tool(tool, arguments, allow_claimed=True)
        if not isinstance(answer, TaskHandle):
            raise TypeError(f"{tool} did not become a task: {answer}")
        return answer

    async def get(self, task_id: str) -> TaskState:
        """Look at a task."""
        return await self._client.session.send_request(GetTask(params=TaskParams(task_id=task_id)), TaskState)

    async def answer(self, task_id: str, responses: dict[str, dict[str, Any]]) -> None:
        """Accept questions, each with its form's content."""
        accepted = {key: {"action": "accept", "content": content} for key, content in responses.items()}
        params = UpdateParams(task_id=task_id, input_responses=accepted)
        await self._client.session.send_request(UpdateTask(params=params), EmptyResult)

    async def cancel(self, task_id: str) -> None:
        """Ask a task to stop."""
        await self._client.session.send_request(CancelTask(params=TaskParams(task_id=task_id)), EmptyResult)

    async def until(self, task_id: str, reached: Callable[[TaskState], bool], *, within: float = 60.0) -> TaskState:
        """Poll until a state is `reached`.

        Raises:
            TimeoutError: It was not, `within` so many seconds.
        """
        async with asyncio.timeout(within):
            while True:
                state = await self.get(task_id)
                if reached(state):
                    return state
                await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[TasksClient]:
    """A client connected to `url` within the context."""
    async with Client(url, extensions=[TasksExtension()], elicitation_callback=_nobody_here) as client:
        yield TasksClient(client)


async def _nobody_here(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """Declares that questions may be asked; those of a task come through tasks/get instead."""
    return ElicitResult(action="cancel")
