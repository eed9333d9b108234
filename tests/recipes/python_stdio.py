"""Deploys a release through `mcp-tasks stdio`, which is started as a desktop client starts it: by its configuration."""

import asyncio
import json
import sys
from pathlib import Path

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.session import ClientRequestContext


async def approve(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Ask the person. Here, everything is approved."""
    print(f"question:  {params.message.splitlines()[0]}")
    return types.ElicitResult(action="accept", content={"approve": True, "note": "through a pipe"})


async def main(server: StdioServerParameters, mode: str) -> None:
    async with Client(server, mode=mode, elicitation_callback=approve) as client:
        print(f"revision:  {client.protocol_version}")
        print("tools:    ", *(tool.name for tool in (await client.list_tools()).tools))
        result = await client.call_tool("deploy_release", {"application": "shop", "release": "v2"})
        print(f"completed: {(result.structured_content or {})['summary']}")


(configured,) = json.loads(Path(sys.argv[1]).read_text())["mcpServers"].values()
asyncio.run(main(StdioServerParameters(**configured), sys.argv[2]))
