"""Deploys a release with FastMCP's client. A second deployment is held as a task, and cancelled."""

import asyncio
import sys
from typing import Any

import fastmcp_tasks  # importing it makes every Client take tasks
from fastmcp import Client
from fastmcp_tasks.client_models import CancelTaskRequest, GetTaskRequest, UpdateTaskRequest

# The Mcp-Name header, which the extension demands and fastmcp-tasks 4.1.4 leaves out
for request in (GetTaskRequest, UpdateTaskRequest, CancelTaskRequest):
    request.name_param = "taskId"


async def approve(message: str, response_type: Any, params: Any, context: Any) -> dict[str, Any]:
    """Ask the person. Here, everything is approved."""
    print(f"question:  {message.splitlines()[0]}")
    return {"approve": True, "note": "from FastMCP"}


async def main(url: str) -> None:
    async with Client(url, elicitation_handler=approve) as client:
        print("tools:    ", *(tool.name for tool in await client.list_tools()))

        # call_tool polls the task, asks through the handler, and returns the result
        result = await client.call_tool("deploy_release", {"application": "shop", "release": "v2"})
        print(f"completed: {result.structured_content['summary']}")

        arguments = {"application": "shop", "release": "v3"}
        task = await fastmcp_tasks.call_tool_task(client, "deploy_release", arguments)
        print(f"task:      {task.task_id}")
        await task.wait(state="input_required")
        await task.cancel()
        print((await task.wait()).status)


asyncio.run(main(*sys.argv[1:]))
