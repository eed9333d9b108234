"""What "Protect with OAuth" shows happens at a bridge that is set up like its reader's."""

from __future__ import annotations

import asyncio
import re
import shutil
from typing import Final

import pytest

from bridge.dev_server import DevServer
from bridge.identity import Scope
from bridge.jwks import ALGORITHMS, MAX_AGE_SECONDS, REFRESH_SECONDS
from bridge.scopes import METHOD_SCOPES
from bridge.until import GRACE_SECONDS
from tests.docs.pages import DOCS, blocks
from tests.support import mcp_tasks, plain_environment

PAGE: Final = DOCS / "how-to" / "protect-with-oauth.md"
WRITTEN: Final = "http://127.0.0.1:8000"


def shown(address: str) -> tuple[str, str]:
    """The command of the page that asks `address`, and what it prints."""
    (block,) = [
        block
        for block in blocks(PAGE, "console")
        if "curl" in block and f"{address} " in f"{block.partition(chr(10))[0]} "
    ]
    command, _, output = block.partition("\n")
    return command.removeprefix("$ "), output


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_what_the_page_shows_happens(temporal: DevServer) -> None:
    """Nothing of it needs the authorization server."""
    environment = plain_environment(
        TEMPORAL_ADDRESS=temporal.address,
        MCP_TASKS_SINGLE_REPLICA="true",
        MCP_TASKS_OAUTH_ISSUERS="https://login.example.com",
        MCP_TASKS_RESOURCE_URL="https://mcp.example.com/mcp",
    )
    async with mcp_tasks("bridge", "--port", "0", environment=environment) as bridge:
        here = bridge.ready["mcp"].removesuffix("/mcp")
        for path in ("/mcp", "/.well-known/oauth-protected-resource/mcp"):
            command, output = shown(WRITTEN + path)
            process = await asyncio.create_subprocess_exec(
                *("bash", "-c", command.replace(WRITTEN, here)), stdout=asyncio.subprocess.PIPE
            )
            async with asyncio.timeout(60):
                printed = (await process.communicate())[0].decode().replace("\r", "")
            kept = re.sub(r"^(Date|Server): .*\n", "", printed, flags=re.MULTILINE)
            assert kept.strip() == output.strip()


def test_the_page_names_every_scope_method_algorithm_and_time() -> None:
    text = PAGE.read_text("utf-8")
    assert all(f"| `{scope}` |" in text for scope in Scope)
    named = {method for method in METHOD_SCOPES if not method.startswith(("resources/", "prompts/", "notifications/"))}
    assert all(f"`{method}`" in text for method in named - {"completion/complete"})
    assert all(algorithm in text for algorithm in ALGORITHMS)
    for seconds, words in (
        (MAX_AGE_SECONDS, f"after {MAX_AGE_SECONDS / 60:.0f} minutes"),
        (REFRESH_SECONDS, f"every {REFRESH_SECONDS:.0f} s"),
        (GRACE_SECONDS, f"within {GRACE_SECONDS:.0f} s"),
    ):
        assert words in text, seconds
