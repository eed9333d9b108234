"""A tasks module with prompts, resources and completion, some of which fail."""

from __future__ import annotations

import sys
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CacheableResult,
    CompleteRequestParams,
    GetPromptRequestParams,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    Resource,
    ResourceTemplate,
)

from bridge.exchange import Exchange
from tests.extension.tools import Pay, pay

Context = ServerRequestContext[Any, Exchange]

TASKS = [Pay]
ACTIVITIES = [pay]

PROMPT_THAT_ASKS = {
    "mode": "form",
    "message": "For whom?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}


def user(text: str) -> dict[str, Any]:
    return {"resultType": "complete", "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


async def list_prompts(_context: Context, _params: PaginatedRequestParams) -> dict[str, Any]:
    names = ("whoami", "asks", "breaks", "refuses", "odd")
    return {"resultType": "complete", "prompts": [{"name": name, "description": name} for name in names]}


async def get_prompt(context: Context, params: GetPromptRequestParams) -> dict[str, Any]:
    match params.name:
        case "whoami":
            assert context.request is not None
            owner = context.request.owner
            return user(f"{owner.issuer}/{owner.subject} over {context.request.caller.channel}")
        case "asks":
            answers = (context.params or {}).get("inputResponses")
            if params.request_state is None or answers is None:
                requests = {"name": {"method": "elicitation/create", "params": PROMPT_THAT_ASKS}}
                return {"resultType": "input_required", "inputRequests": requests, "requestState": "round 1"}
            return user(f"{params.request_state}: {answers['name']['content']['name']}")
        case "breaks":
            raise ValueError("secret of the module")
        case "leaves":
            sys.exit(3)
        case "interrupts":
            raise KeyboardInterrupt("secret")
        case "odd":
            return {"no": "messages"}
        case _:
            raise MCPError(-32602, "No such prompt today", {"name": params.name})


async def list_resources(_context: Context, _params: PaginatedRequestParams) -> CacheableResult:
    found = [Resource(uri="acme://one", name="one")]
    return ListResourcesResult(resources=found, ttl_ms=5000, cache_scope="public")


async def list_templates(_context: Context, params: PaginatedRequestParams) -> CacheableResult:
    name = "first" if params.cursor is None else "second"
    found = [ResourceTemplate(uri_template=f"acme://{name}/{{id}}", name=name)]
    return ListResourceTemplatesResult(
        resource_templates=found, next_cursor="more" if params.cursor is None else None, ttl_ms=7000
    )


async def read_resource(_context: Context, params: ReadResourceRequestParams) -> dict[str, Any]:
    return {"resultType": "complete", "contents": [{"uri": params.uri, "text": "one"}]}


async def complete(_context: Context, params: CompleteRequestParams) -> dict[str, Any]:
    return {"resultType": "complete", "completion": {"values": [params.argument.value + "!"]}}


def register_handlers(server: Server[Any]) -> None:
    server.instructions = "Pay with care."
    server.add_request_handler("prompts/list", PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", GetPromptRequestParams, get_prompt)
    server.add_request_handler("resources/list", PaginatedRequestParams, list_resources)
    server.add_request_handler("resources/templates/list", PaginatedRequestParams, list_templates)
    server.add_request_handler("resources/read", ReadResourceRequestParams, read_resource)
    server.add_request_handler("completion/complete", CompleteRequestParams, complete)
