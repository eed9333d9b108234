"""Where "My task stays working" says to look, there is what it says: no poller, then a worker without the tool."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

import pytest

from bridge.dev_server import DevServer, temporal_binary
from tests.cases.client import McpClient
from tests.cases.stack import Programs, program_environment
from tests.docs.pages import DOCS, blocks
from tests.encryption import ENCRYPTED
from tests.support import eventually, unique

PAGE: Final = DOCS / "how-to" / "my-task-stays-working.md"
REFUSED: Final = "Encoded failure" if ENCRYPTED else "Workflow class deploy_release is not registered on this worker"
CALL: Final = {"application": "shop", "release": "v2"}


@pytest.mark.asyncio(loop_scope="session")
async def test_the_commands_of_the_page_find_the_causes(temporal: DevServer, tmp_path: Path) -> None:
    queue = unique("docs")
    environment = program_environment(tmp_path, temporal.environment) | {"MCP_TASKS_TASK_QUEUE": queue}

    async def run(*command: str) -> str:
        process = await asyncio.create_subprocess_exec(
            temporal_binary(), *command, env=environment, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(60):
            return (await process.communicate())[0].decode()

    page = PAGE.read_text("utf-8")
    programs = Programs(environment=environment)
    try:
        bridge = await programs.bridge("bridge.shipped")
        async with McpClient(bridge.url) as client:
            task = await client.start("deploy_release", CALL)
            described = await run("workflow", "describe", "--workflow-id", task)
            assert re.search(rf"^  TaskQueue +{queue}$", described, re.MULTILINE)
            (header,) = re.findall(r"^Pollers:\n(.*)\n```$", page.split("## Does the worker")[0], re.MULTILINE)
            nobody = await run("task-queue", "describe", "--task-queue", queue)
            assert nobody.rstrip().endswith(f"Pollers:\n{header}")

            await programs.worker("tests.fixtures.cases")

            async def said() -> str:
                history = await run("workflow", "show", "--workflow-id", task, "--output", "json")
                found = re.search(rf'"message": "({REFUSED})', history)
                return found[1] if found else ""

            await eventually(said, what="the worker to refuse the workflow", within=30)
            assert await said() in page
            assert "WorkflowTaskFailed" in await run("workflow", "show", "--workflow-id", task)
            assert (await client.get(task)).result["status"] == "working"

            await run("workflow", "terminate", "--workflow-id", task, "--reason", "wrong type in the catalog")
            ended = (await client.get(task)).result
            assert f'"statusMessage": "{ended["statusMessage"]}"' in page
            assert ended["status"] == "failed"
    finally:
        await programs.close()
    assert all(f"temporal {command}" in page for command in ("workflow describe", "task-queue describe"))
    assert blocks(PAGE, "console")
