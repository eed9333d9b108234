"""The ceiling of a bridge in Python: our transport and the SDK's kernel, and behind them a tasks/get that returns a
constant. Argument: the result, as JSON. Prints its endpoint as JSON when it listens.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import uvloop
from aiohttp import web
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from bridge.auth import no_authentication
from bridge.dev_server import LOOPBACK
from bridge.exchange import Caller
from bridge.heap import settle
from bridge.http import SERVER_OPTIONS, HttpSettings, mount_mcp
from bridge.identity import Identity
from bridge.jsonrpc import RequestId
from bridge.older import OlderRevisions
from bridge.seal import Seal
from bridge.stopping import stop_signals
from bridge.tasks import TaskParams
from workflows.kit.contract import Principal

_KEYS = ["c" * 32]


class _NoAnswers:
    """Nothing is ever asked."""

    async def asks(self, _task_id: str, _key: str, _identity: Identity) -> bool:
        return False

    async def deliver(self, _task_id: str, _responses: Mapping[str, Any], _caller: Caller) -> bool:
        return False


async def _cancel_task(_task_id: str, _owner: Principal) -> None:
    return


async def _cancel_request(_request_id: RequestId, _caller: Caller) -> None:
    return


async def main(result: Mapping[str, Any]) -> None:
    """Serve until told to stop."""

    async def get(_context: ServerRequestContext[Any, Any], _params: TaskParams) -> dict[str, Any]:
        return dict(result)

    server: Server[Any] = Server("ceiling", version="1")
    server.add_request_handler("tasks/get", TaskParams, get)
    older = OlderRevisions(
        sessions=Seal(_KEYS, "session", timedelta(hours=1)),
        question_ids=Seal(_KEYS, "question", timedelta(hours=1)),
        answers=_NoAnswers(),
        cancel_task=_cancel_task,
        cancel_request=_cancel_request,
        capabilities={},
        server_info={"name": "ceiling", "version": "1"},
    )
    app = web.Application()
    mount_mcp(app, server, older, HttpSettings(), no_authentication)
    runner = web.AppRunner(app, access_log=None, **SERVER_OPTIONS)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, 0).start()
        async with stop_signals() as stop:
            settle()
            sys.stdout.write(json.dumps({"mcp": f"http://{LOOPBACK}:{runner.addresses[0][1]}/mcp"}) + "\n")
            sys.stdout.flush()
            await stop.wait()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    uvloop.run(main(json.loads(sys.argv[1])))
