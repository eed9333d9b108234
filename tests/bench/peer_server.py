"""The peer's server: the same tool as `tests.bench.tools.Approve`, on fastmcp-tasks; runs in an environment of its own.

As its documentation sets it up: one process that serves HTTP and runs the tasks, Redis behind it. It answers in JSON
as ours does, and keeps idle connections as long. Arguments: port, URL of Redis.
"""

from __future__ import annotations

import sys

import mcp_types
from fastmcp import Context, FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension


async def approve(change: str, ctx: Context) -> dict[str, str | bool] | mcp_types.InputRequiredResult:
    """Ask for an approval of a change."""
    responses = ctx.input_responses
    if responses is None:
        question = mcp_types.ElicitRequest(
            params=mcp_types.ElicitRequestFormParams(
                message=f"Apply {change}?",
                requested_schema={
                    "type": "object",
                    "properties": {"approved": {"type": "boolean"}},
                    "required": ["approved"],
                },
            )
        )
        return mcp_types.InputRequiredResult(input_requests={"approval": question})
    answer = responses["approval"]
    approved = isinstance(answer, mcp_types.ElicitResult) and bool((answer.content or {}).get("approved"))
    return {"change": change, "approved": approved}


if __name__ == "__main__":
    server = FastMCP("bench")
    server.add_extension(TasksExtension(url=sys.argv[2]))
    server.tool(task=TaskConfig(mode="required"))(approve)
    server.run(
        transport="http",
        host="127.0.0.1",
        port=int(sys.argv[1]),
        show_banner=False,
        log_level="error",
        json_response=True,
        stateless_http=True,
        uvicorn_config={"access_log": False, "timeout_keep_alive": 75},
    )
