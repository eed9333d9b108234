"""Deploys a release with the official Python SDK and no Tasks extension: the call waits, and asks through a callback.

`legacy` as the second argument speaks 2025-11-25: nothing else changes.
"""

import asyncio
import sys

import mcp_types as types
from mcp import Client
from mcp.client.session import ClientRequestContext


async def approve(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Ask the person. Here, everything is approved."""
    print(f"question:  {params.message.splitlines()[0]}")
    return types.ElicitResult(action="accept", content={"approve": True, "note": "from Python"})


async def main(url: str, mode: str = "auto") -> None:
    async with Client(url, mode=mode, elicitation_callback=approve) as client:
        print(f"revision:  {client.protocol_version}")
        print("tools:    ", *(tool.name for tool in (await client.list_tools()).tools))
        result = await client.call_tool("deploy_release", {"application": "shop", "release": "v2"})
        print(f"completed: {(result.structured_content or {})['summary']}")


asyncio.run(main(*sys.argv[1:]))
