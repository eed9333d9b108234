"""An authorization server that cannot say where people sign in: visits of anybody are no load for it."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web

from bridge.dev_server import free_port
from tests.support import mcp_tasks, plain_environment

VISITS = 30


async def test_an_authorization_server_that_fails_is_asked_once_for_all_visits_of_a_while() -> None:
    asked: list[str] = []

    async def fail(request: web.Request) -> web.Response:
        asked.append(request.path)
        await asyncio.sleep(0.2)
        return web.Response(status=500)

    app = web.Application()
    app.router.add_get("/{path:.*}", fail)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    origin = f"http://127.0.0.1:{free_port()}"
    environment = plain_environment(
        TEMPORAL_ADDRESS="127.0.0.1:1",
        MCP_TASKS_SINGLE_REPLICA="true",
        MCP_TASKS_OAUTH_ISSUERS=f"http://127.0.0.1:{runner.addresses[0][1]}",
        MCP_TASKS_RESOURCE_URL=f"{origin}/mcp",
        MCP_TASKS_PAGES_URL=f"{origin}/pages",
        MCP_TASKS_PAGES_CLIENT_ID="pages",
    )
    try:
        async with (
            mcp_tasks("bridge", "--port", origin.rpartition(":")[2], environment=environment),
            aiohttp.ClientSession() as session,
        ):

            async def visit() -> int:
                async with session.get(f"{origin}/pages/task/key") as response:
                    return response.status

            assert set(await asyncio.gather(*(visit() for _ in range(VISITS)))) == {503}
            assert len(asked) == len(set(asked)), "each place once"
    finally:
        await runner.cleanup()
