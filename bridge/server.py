"""The MCP server: the official SDK's kernel with our handlers, and nothing of its own state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, Final, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, PaginatedRequestParams, RequestParams

from bridge.calls import Calls
from bridge.capabilities import TASKS_EXTENSION
from bridge.catalog import Catalog
from bridge.errors import BridgeError
from bridge.exchange import Exchange
from bridge.tasks import Context, TaskParams, Tasks

SERVER_NAME: Final = "mcp-temporal-tasks"
SUPPORTED_VERSIONS: Final = ("2026-07-28",)

CATALOG_TTL_MS: Final = 60_000
"""How long a client may keep the tool list and our capabilities: they change only when the bridge is started anew."""

ParamsT = TypeVar("ParamsT", bound=RequestParams)
Handler = Callable[[Context, ParamsT], Awaitable[dict[str, Any]]]


def build_server(catalog: Catalog, calls: Calls, tasks: Tasks, security: RequestStateSecurity) -> Server[Any]:
    """The server with every method that this bridge serves."""
    server: Server[Any] = Server(SERVER_NAME, version=version(SERVER_NAME), get_tool_input_schema=catalog.input_schema)
    server.middleware.append(RequestStateBoundary(security, default_audience=SERVER_NAME))

    async def discover(context: Context, _params: RequestParams) -> dict[str, Any]:
        # Our own: the SDK's would claim listChanged for everything once subscriptions are served
        return {
            "resultType": "complete",
            "supportedVersions": list(SUPPORTED_VERSIONS),
            "capabilities": {"tools": {}, "extensions": {TASKS_EXTENSION: {}}},
            **_cacheable(),
        }

    async def list_tools(context: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        try:
            tools, following = catalog.page(params.cursor)
        except ValueError:
            raise MCPError(INVALID_PARAMS, "params.cursor is not one that this server gave out") from None
        page = {"resultType": "complete", "tools": tools, **_cacheable()}
        return page if following is None else page | {"nextCursor": following}

    def serve(method: str, params: type[ParamsT], handler: Handler[ParamsT]) -> None:
        server.add_request_handler(method, params, _translated(handler))

    serve("server/discover", RequestParams, discover)
    serve("tools/list", PaginatedRequestParams, list_tools)
    serve("tools/call", CallToolRequestParams, calls.call)
    serve("tasks/get", TaskParams, tasks.get)
    serve("tasks/update", TaskParams, tasks.update)
    serve("tasks/cancel", TaskParams, tasks.cancel)
    return server


def bound_principal(context: ServerRequestContext[Any, Exchange]) -> str | None:
    """Who a sealed requestState belongs to: whoever else presents it is refused."""
    if context.request is None:
        return None
    owner = context.request.owner
    return f"{owner.issuer}\0{owner.subject}"


def _cacheable() -> dict[str, Any]:
    return {"ttlMs": CATALOG_TTL_MS, "cacheScope": "public"}


def _translated(handler: Handler[ParamsT]) -> Handler[ParamsT]:
    """`handler` with our errors as the SDK's, which the transport writes."""

    async def translated(context: Context, params: ParamsT) -> dict[str, Any]:
        try:
            return await handler(context, params)
        except BridgeError as error:
            raise MCPError(error.code, error.message, error.data) from error

    return translated
