"""The quick start's requests give the answers that the page prints, but for ids and times."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from bridge.dev_server import DevServer
from tests.cases.client import TASKS, McpClient, accept
from tests.cases.stack import Programs, program_environment
from tests.docs.pages import DOCS, blocks
from tests.support import unique

PAGE: Final = DOCS / "tutorial" / "quick-start.md"
CAPABILITIES: Final[Mapping[str, Any]] = {"elicitation": {}, "extensions": {TASKS: {}}}
"""What the page's shell function declares."""

_SERVER_STAMP: Final = re.compile(r',\s+"_meta": …')
_VARYING: Final = re.compile(r"task-[0-9a-f]{32}|q-[0-9a-f]{32}|\d{4}-\d\d-\d\dT[\d:.]+Z|(?<=\"ttlMs\": )\d+")


def masked(message: Any) -> str:
    """A JSON-RPC message without what differs from run to run."""
    return _VARYING.sub("*", json.dumps(message | {"id": 1}, sort_keys=True))


def printed(page: Path = PAGE) -> list[str]:
    """The answers on the page, in order."""
    blocks_with_json = [block for block in blocks(page, "console") if "\n{\n" in block]
    return [masked(json.loads(_SERVER_STAMP.sub("", block[block.index("\n{\n") :]))) for block in blocks_with_json]


def answered(message: dict[str, Any]) -> str:
    """An answer as the page prints it."""
    message.get("result", {}).pop("_meta", None)
    return masked(message)


@pytest.mark.asyncio(loop_scope="session")
async def test_the_answers_are_those_that_the_page_prints(temporal: DevServer, tmp_path: Path) -> None:
    (tmp_path / ".run" / "migrate").mkdir(parents=True)
    preparation = blocks(PAGE, "bash")[0].split("<<'PYTHON'\n")[1].partition("\nPYTHON")[0]
    subprocess.run([sys.executable, "-c", preparation], cwd=tmp_path, check=True)  # noqa: S603, ASYNC221
    environment = program_environment(tmp_path, temporal.environment)
    environment["MCP_TASKS_MIGRATE_ROOT"] = str(tmp_path / ".run" / "migrate")
    programs = Programs(environment={**environment, "MCP_TASKS_TASK_QUEUE": unique("docs")})
    try:
        await programs.worker("bridge.shipped")
        bridge = await programs.bridge("bridge.shipped")
        async with McpClient(bridge.url, CAPABILITIES) as client:
            call = await client.call("migrate_records", {"source": "old.db", "target": "new.db"})
            task = call.result["taskId"]
            (key,) = await client.parked(task)
            parked = await client.get(task)
            refused = await client.update(task, {key: accept(choice="7")})
            taken = await client.update(task, {key: accept(choice="0")})
            await client.finished(task)
            ended = await client.get(task)
    finally:
        await programs.close()
    assert [answered(reply.message) for reply in (call, parked, refused, taken, ended)] == printed()
