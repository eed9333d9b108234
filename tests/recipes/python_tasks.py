"""Deploys a release as a task, with the official Python SDK. A second deployment is cancelled."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any, Literal

import mcp_types as types
from mcp import Client, MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientRequestContext, ClientSession


class Handle(types.Result):
    """What tools/call answers when the call became a task."""

    result_type: Literal["task"]
    task_id: str
    status: str


class State(types.Result):
    """What tasks/get answers."""

    status: str
    poll_interval_ms: int = 1000
    input_requests: dict[str, types.InputRequest] | None = None
    result: types.CallToolResult | None = None
    error: types.ErrorData | None = None


class TaskParams(types.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, types.InputResponse]


class GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"  # sent as the Mcp-Name header, too


class UpdateTask(types.Request[UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    name_param = "taskId"


class CancelTask(types.Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    name_param = "taskId"


async def get(session: ClientSession, task_id: str) -> State:
    return await session.send_request(GetTask(params=TaskParams(task_id=task_id)), State)


class Tasks(ClientExtension):
    """Declares the Tasks extension. `Client.call_tool` then waits for the task, and returns its result."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Handle, resolve=self.finish)]

    async def finish(self, handle: Handle, context: ClaimContext) -> types.CallToolResult:
        print(f"task:      {handle.task_id}")
        while True:
            state = await get(context.session, handle.task_id)
            if state.status == "completed" and state.result:
                return state.result
            if state.status == "failed" and state.error:
                raise MCPError.from_error_data(state.error)
            if state.status == "cancelled":
                raise asyncio.CancelledError(f"{handle.task_id} was cancelled")
            if state.input_requests:
                await self.answer(handle.task_id, state.input_requests, context.session)
            else:
                await asyncio.sleep(state.poll_interval_ms / 1000)

    async def answer(self, task_id: str, questions: dict[str, types.InputRequest], session: ClientSession) -> None:
        """Have the client's own callbacks answer, and send what they say."""
        answers: dict[str, types.InputResponse] = {}
        for key, question in questions.items():
            context = ClientRequestContext(session=session, request_id=key)
            answer = await session.dispatch_input_request(context, question)
            if isinstance(answer, types.ErrorData):
                raise MCPError.from_error_data(answer)
            answers[key] = answer
        params = UpdateParams(task_id=task_id, input_responses=answers)
        await session.send_request(UpdateTask(params=params), types.EmptyResult)


async def approve(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Ask the person. Here, everything is approved."""
    print(f"question:  {params.message.splitlines()[0]}")
    return types.ElicitResult(action="accept", content={"approve": True, "note": "from Python"})


async def main(url: str) -> None:
    async with Client(url, extensions=[Tasks()], elicitation_callback=approve) as client:
        print("tools:    ", *(tool.name for tool in (await client.list_tools()).tools))

        result = await client.call_tool("deploy_release", {"application": "shop", "release": "v2"})
        print(f"completed: {(result.structured_content or {})['summary']}")

        # The handle itself, for a client that keeps it and comes back later
        arguments = {"application": "shop", "release": "v3"}
        handle = await client.session.call_tool("deploy_release", arguments, allow_claimed=True)
        assert isinstance(handle, Handle)
        print(f"task:      {handle.task_id}")
        await client.session.send_request(CancelTask(params=TaskParams(task_id=handle.task_id)), types.EmptyResult)
        while (state := await get(client.session, handle.task_id)).status in {"working", "input_required"}:
            await asyncio.sleep(state.poll_interval_ms / 1000)
        print(state.status)


asyncio.run(main(*sys.argv[1:]))
