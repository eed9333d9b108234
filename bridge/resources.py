"""The history of each task as an MCP resource, beside the resources of the tasks module.

A history is read by whoever may read its task; for a stranger's task, an unknown one and an id that is no task there
is one answer, which is also that of any other resource that does not exist (resources, "Error Handling"). Histories are
offered as a template, not as a list: who may read one has been given its task's id.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import unquote

from mcp.server.context import HandlerResult
from mcp.server.lowlevel.server import HandlerEntry
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ErrorData, PaginatedRequestParams, ReadResourceRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from bridge.errors import TaskNotFound
from bridge.features import CATALOG_TTL_MS, BridgeServer, cacheable
from bridge.histories import Histories
from bridge.jsonrpc import MAX_ECHO_CHARS
from bridge.tasks import Context, exchange_of
from workflows.kit.contract import cut

HISTORY_TEMPLATE: Final = "mcp-task://{taskId}/history"
MIME_TYPE: Final = "application/json"

OLD_RESOURCE_NOT_FOUND: Final = -32002
"""The code of a resource that does not exist before 2026-07-28, which retired it (SEP-2164)."""

_HISTORY_URI: Final = re.compile(r"mcp-task://([^/?#]+)/history")
_OURS: Final = "mcp-task:"

_WIRE_TEMPLATE: Final = {
    "uriTemplate": HISTORY_TEMPLATE,
    "name": "task_history",
    "title": "History of a task",
    "description": (
        "What happened to a task that you may read, oldest first: who asked for it, what it asked and who answered, "
        "its steps, cancels, and how it ended. No arguments, answers or results."
    ),
    "mimeType": MIME_TYPE,
}

_Entry = HandlerEntry[Any]


class Resources:
    """The handlers of resources/list, resources/templates/list and resources/read."""

    def __init__(self, histories: Histories, server: BridgeServer) -> None:
        """`server` has been extended: what is registered now is the tasks module's."""
        self._histories = histories
        self._list = server.get_request_handler("resources/list")
        self._templates = server.get_request_handler("resources/templates/list")
        self._read = server.get_request_handler("resources/read")

    async def list(self, context: Context, params: PaginatedRequestParams) -> HandlerResult:
        """resources/list: the tasks module's."""
        if self._list is not None:
            return await _theirs(self._list, context)
        _require_first_page(params)
        return {"resultType": "complete", "resources": [], **cacheable()}

    async def templates(self, context: Context, params: PaginatedRequestParams) -> HandlerResult:
        """resources/templates/list: ours first, then the tasks module's."""
        if self._templates is None:
            _require_first_page(params)
            return {"resultType": "complete", "resourceTemplates": [_WIRE_TEMPLATE], **cacheable()}
        result = await _theirs(self._templates, context)
        if params.cursor is not None or isinstance(result, ErrorData):
            return result
        page = (
            result.model_dump(mode="json", by_alias=True, exclude_none=True)
            if isinstance(result, BaseModel)
            else result
        )
        page = dict(page or {})
        return {**page, "resourceTemplates": [_WIRE_TEMPLATE, *page.get("resourceTemplates", ())]}

    async def read(self, context: Context, params: ReadResourceRequestParams) -> HandlerResult:
        """resources/read. Raises BridgeError: Temporal is away."""
        uri = str(params.uri)
        if not is_ours(uri):
            if self._read is not None:
                return await _theirs(self._read, context)
            raise _not_found(uri, context)
        named = _HISTORY_URI.fullmatch(uri)
        if named is None:
            raise _not_found(uri, context)
        try:
            history, final = await self._histories.read(unquote(named[1]), exchange_of(context).caller.identity)
        except TaskNotFound:
            raise _not_found(uri, context) from None
        text = json.dumps(history, ensure_ascii=False)
        return {
            "resultType": "complete",
            "contents": [{"uri": uri, "mimeType": MIME_TYPE, "text": text}],
            "ttlMs": CATALOG_TTL_MS if final else 0,
            "cacheScope": "private",
        }


def is_ours(uri: str) -> bool:
    """Whether a resource is the bridge's, if there is one; all others are the tasks module's."""
    return uri.startswith(_OURS)


async def _theirs(entry: _Entry, context: Context) -> HandlerResult:
    return await entry.handler(context, entry.params_type.model_validate(context.params or {}, by_name=False))


def _require_first_page(params: PaginatedRequestParams) -> None:
    if params.cursor is not None:
        raise MCPError(INVALID_PARAMS, "params.cursor is not one that this server gave out")


def _not_found(uri: str, context: Context) -> MCPError:
    code = INVALID_PARAMS if context.protocol_version in MODERN_PROTOCOL_VERSIONS else OLD_RESOURCE_NOT_FOUND
    return MCPError(code, "Resource not found", {"uri": cut(uri, MAX_ECHO_CHARS)})
