"""A tasks module that announces changes: a prompt that is read publishes what its argument says."""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import GetPromptRequestParams, PaginatedRequestParams, ReadResourceRequestParams

from bridge.exchange import Exchange
from tests.extension import served
from tests.extension.served import ACTIVITIES, TASKS

__all__ = ["ACTIVITIES", "SUBSCRIPTIONS", "TASKS", "register_handlers"]

Context = ServerRequestContext[Any, Exchange]

SUBSCRIPTIONS = InMemorySubscriptionBus()

EVENTS: dict[str, ServerEvent] = {
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
    "tools": ToolsListChanged(),
    "foreign": "no event at all",  # type: ignore[dict-item]
    "odd": ResourceUpdated(["acme://one"]),  # type: ignore[arg-type]
}


async def get_prompt(_context: Context, params: GetPromptRequestParams) -> dict[str, Any]:
    for name in (params.arguments or {})["publish"].split():
        await SUBSCRIPTIONS.publish(EVENTS.get(name) or ResourceUpdated(name))
    return served.user("published")


def register_handlers(server: Server[Any]) -> None:
    server.add_request_handler("prompts/list", PaginatedRequestParams, served.list_prompts)
    server.add_request_handler("prompts/get", GetPromptRequestParams, get_prompt)
    server.add_request_handler("resources/list", PaginatedRequestParams, served.list_resources)
    server.add_request_handler("resources/read", ReadResourceRequestParams, served.read_resource)
