"""The programs with a catalog: what they offer, and what they do not start."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from tests.cases.client import McpClient
from tests.support import mcp_tasks, plain_environment, run_to_end

ANY_PORTS: Final = ("--port", "0", "--temporal-port", "0", "--ui-port", "0")
CATALOG: Final = """
[tools.report]
workflow = "Report"
queue = "mcp-tasks"
description = "Builds a report."
input_schema = { type = "object" }
"""


@pytest.mark.parametrize("command", [("bridge", "--port", "0"), ("dev", *ANY_PORTS)], ids=["bridge", "dev"])
async def test_a_catalog_that_cannot_be_used_ends_the_start_with_one_line_and_status_2(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "tools.toml"
    file.write_text(CATALOG.replace("queue", "queu"))
    environment = plain_environment(MCP_TASKS_SINGLE_REPLICA="true", MCP_TASKS_CATALOG=str(file))
    status, output, errors = await run_to_end(*command, environment=environment)
    assert (status, output) == (2, "")
    assert errors.startswith(f"mcp-tasks: catalog {file}: tool report: queue is missing: the task queue that its ")
    assert errors.count("\n") == 1


async def test_dev_with_a_catalog_alone_leaves_the_queue_to_the_workers_of_others(tmp_path: Path) -> None:
    """A worker of the sample tools, which knows none of their workflows, would fail their workflow tasks."""
    file = tmp_path / "tools.toml"
    file.write_text(CATALOG)
    async with (
        mcp_tasks("dev", *ANY_PORTS, "--catalog", str(file)) as dev,
        McpClient(dev.ready["mcp"]) as client,
    ):
        tools = (await client.request("tools/list")).result["tools"]
        assert [tool["name"] for tool in tools] == ["report"]
        temporal = await Client.connect(dev.ready["temporal"])
        queue = await temporal.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace="default",
                task_queue=TaskQueue(name="mcp-tasks"),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            )
        )
        assert not queue.pollers
