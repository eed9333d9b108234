"""A tasks module with one resource: who reads it."""

from __future__ import annotations

import json
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import ReadResourceRequestParams

from bridge.exchange import Exchange
from bridge.shipped import ACTIVITIES, TASKS

__all__ = ["ACTIVITIES", "TASKS", "register_handlers"]


def register_handlers(server: Server[Any]) -> None:
    """See `bridge.features`."""

    async def read(context: ServerRequestContext[Any, Exchange], params: ReadResourceRequestParams) -> dict[str, Any]:
        assert context.request is not None
        identity = context.request.caller.identity
        who = {
            "issuer": identity.principal.issuer,
            "subject": identity.principal.subject,
            "ends": identity.expires_at is not None,
        }
        return {"resultType": "complete", "contents": [{"uri": str(params.uri), "text": json.dumps(who)}]}

    server.add_request_handler("resources/read", ReadResourceRequestParams, read)
