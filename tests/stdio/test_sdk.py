"""The official Python client, which starts the server itself."""

from __future__ import annotations

import sys
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.session import ClientRequestContext

from tests.cases.stack import Stack
from tests.stdio.runs import run_of
from tests.support import unique

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"text": params.message})


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_the_official_client_calls_a_tool_that_asks(stack: Stack, mode: str, version: str) -> None:
    label = unique(mode)
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "bridge.cli", "stdio", "--tasks", "tests.fixtures.cases"],
        env=stack.environment,
        cwd=Path(__file__).parents[2],
    )
    async with Client(server, mode=mode, elicitation_callback=answer) as client:
        assert client.protocol_version == version
        assert "ask" in {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("ask", {"n": 2, "label": label})
    assert result.structured_content is not None
    assert result.structured_content["answers"] == [[f"Question {number}"] * 2 for number in range(2)]
    assert stack.side_effects(label) == 2
    assert await run_of(stack, label) == ("COMPLETED", False)
