"""The MCP server: the official SDK's kernel with our handlers, and nothing of its own state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, Final, TypeVar

from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    RequestParams,
)
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

from bridge.announce import TOOLS, Announcer
from bridge.calls import Calls
from bridge.catalog import Catalog
from bridge.degrade import shown_tool
from bridge.envelope import SERVED_VERSIONS
from bridge.errors import BridgeError
from bridge.exchange import Exchange
from bridge.features import CACHE_HINTS, BridgeServer, RegisterHandlers, cacheable, capabilities
from bridge.histories import Histories
from bridge.listen import Subscriptions
from bridge.resources import Resources
from bridge.tasks import Context, TaskParams, Tasks, exchange_of

SERVER_NAME: Final = "mcp-temporal-tasks"

ParamsT = TypeVar("ParamsT", bound=RequestParams)
Handler = Callable[[Context, ParamsT], Awaitable[HandlerResult]]


def extended_server(
    catalog: Catalog, security: RequestStateSecurity, register: RegisterHandlers | None
) -> BridgeServer:
    """A server with what the tasks module's `register_handlers` adds to it, and nothing of ours yet.

    Raises:
        SettingsError: The tasks module registers what it may not.
    """
    server = BridgeServer(
        SERVER_NAME,
        version=version(SERVER_NAME),
        get_tool_input_schema=catalog.input_schema,
        cache_hints=CACHE_HINTS,
    )
    if isinstance(get_tracer_provider(), ProxyTracerProvider):
        server.middleware.clear()  # the SDK's spans, which nobody collects: a tenth of a read from memory
    server.middleware.append(RequestStateBoundary(security, default_audience=SERVER_NAME))
    if register is not None:
        server.extend(register)
    return server


def add_methods(
    server: BridgeServer,
    catalog: Catalog,
    calls: Calls,
    tasks: Tasks,
    subscriptions: Subscriptions,
    histories: Histories,
    announcer: Announcer,
) -> None:
    """Have `server` serve every method of this bridge."""

    async def discover(context: Context, _params: RequestParams) -> dict[str, Any]:
        # Our own: the SDK's would claim listChanged for everything once subscriptions are served
        return {
            "resultType": "complete",
            "supportedVersions": list(SERVED_VERSIONS),
            "capabilities": capabilities(server, context.protocol_version, announcer.kinds),
            **({"instructions": server.instructions} if server.instructions else {}),
            **cacheable(),
        }

    async def list_tools(context: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        try:
            tools, following = catalog.page(params.cursor, exchange_of(context).caller.identity.has)
        except ValueError:
            raise MCPError(INVALID_PARAMS, "params.cursor is not one that this server gave out") from None
        peer = exchange_of(context).peer
        if not peer.modern:
            tools = [shown_tool(peer.version, tool) for tool in tools]
        caching = cacheable(changing=TOOLS in announcer.kinds, private=catalog.differs)
        page = {"resultType": "complete", "tools": tools, **caching}
        return page if following is None else page | {"nextCursor": following}

    def serve(method: str, params: type[ParamsT], handler: Handler[ParamsT]) -> None:
        server.add_request_handler(method, params, _translated(handler))

    serve("server/discover", RequestParams, discover)
    serve("tools/list", PaginatedRequestParams, list_tools)
    serve("tools/call", CallToolRequestParams, calls.call)
    serve("subscriptions/listen", TaskParams, subscriptions.listen)
    serve("tasks/get", TaskParams, tasks.get)
    serve("tasks/update", TaskParams, tasks.update)
    serve("tasks/cancel", TaskParams, tasks.cancel)
    resources = Resources(histories, server)
    serve("resources/list", PaginatedRequestParams, resources.list)
    serve("resources/templates/list", PaginatedRequestParams, resources.templates)
    serve("resources/read", ReadResourceRequestParams, resources.read)


def bound_principal(context: ServerRequestContext[Any, Exchange]) -> str | None:
    """Who a sealed requestState belongs to: whoever else presents it is refused."""
    if context.request is None:
        return None
    return context.request.owner.identity


def _translated(handler: Handler[ParamsT]) -> Handler[ParamsT]:
    """`handler` with our errors as the SDK's, which the transport writes."""

    async def translated(context: Context, params: ParamsT) -> HandlerResult:
        try:
            return await handler(context, params)
        except BridgeError as error:
            raise MCPError(error.code, error.message, error.data) from error

    return translated
