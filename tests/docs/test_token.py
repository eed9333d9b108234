"""What "Require a token" shows happens at a bridge that has one."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

from bridge.dev_server import DevServer
from tests.docs.pages import DOCS, blocks
from tests.support import mcp_tasks, plain_environment

PAGE: Final = DOCS / "how-to" / "require-a-token.md"
TOKEN: Final = "a-token-of-the-tests"
WRITTEN: Final = "http://127.0.0.1:8000/mcp"


def shown(command: str) -> str:
    """What the page prints below the command that contains `command`."""
    (block,) = [block for block in blocks(PAGE, "console") if command in block.partition("\n")[0]]
    return block.partition("\n")[2]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_what_the_page_shows_happens(temporal: DevServer, tmp_path: Path) -> None:
    environment = plain_environment(
        TEMPORAL_ADDRESS=temporal.address, MCP_TASKS_SINGLE_REPLICA="true", MCP_TASKS_BEARER_TOKEN=TOKEN
    )
    (tmp_path / "bearer-token").write_text(f"{TOKEN}\n", "utf-8")
    (tmp_path / "with_token.py").write_text(blocks(PAGE, "python")[0], "utf-8")
    async with mcp_tasks("bridge", "--port", "0", environment=environment) as bridge:
        url = bridge.ready["mcp"]

        async def run(command: str) -> str:
            path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
            process = await asyncio.create_subprocess_exec(
                *("bash", "-euo", "pipefail", "-c", command),
                cwd=tmp_path,
                env=plain_environment(PATH=path, MCP_URL=url),
                stdout=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(60):
                return (await process.communicate())[0].decode()

        refused = await run(f"curl -sS -i {url} -H 'Content-Type: application/json' -d '{{}}'")
        kept = re.sub(r"^(Date|Server): .*\n", "", refused.replace("\r", ""), flags=re.MULTILINE)
        assert kept.strip() == shown("curl").strip()
        assert 'error="invalid_token"' in await run(f"curl -sS -i {url} -H 'Authorization: Bearer {TOKEN}x' -d '{{}}'")
        assert await run(blocks(PAGE, "bash")[0]) == blocks(PAGE, "text")[0]
        assert await run(f"python with_token.py {url}") == shown(f"python with_token.py {WRITTEN}")
