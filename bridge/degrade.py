"""What revisions before 2026-07-28 cannot express, told in what they can (their schemas; SEP-1034, 1330, 2106).

Results and tools lose what would make an old client refuse them; a question that cannot be put is not put at all.
Everything else that is newer (`resultType`, caching hints, `serverInfo`) the SDK's kernel leaves out by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from workflows.kit.questions import ELICITATION

OLDEST: Final = "2025-06-18"
"""Forms of this revision have no defaults but for booleans, no titled options as such, and no lists."""


class CannotAsk(Exception):
    """A question that this revision has no words for; the message says what it lacks."""


def shown_tool(version: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool of tools/list. Output schemas had to be objects; 2025-06-18 did not know `$schema` in tools' schemas."""
    shown = dict(tool)
    schema = shown.get("outputSchema")
    if schema is not None and schema.get("type") != "object":
        del shown["outputSchema"]
    if version == OLDEST:
        for name in ("inputSchema", "outputSchema"):
            if name in shown:
                shown[name] = {key: value for key, value in shown[name].items() if key != "$schema"}
    return shown


def shown_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """A CallToolResult. `structuredContent` had to be an object; its text stands beside it anyway."""
    if isinstance(result.get("structuredContent", {}), dict):
        return dict(result)
    return {name: value for name, value in result.items() if name != "structuredContent"}


def asked_request(version: str, request: Mapping[str, Any], elicitation_id: str) -> dict[str, Any]:
    """An input request as `{method, params}` of a request from the server. Raises CannotAsk."""
    params = dict(request.get("params", {}))
    if request["method"] == ELICITATION:
        if params.get("mode") == "url":
            params["elicitationId"] = elicitation_id
        elif version == OLDEST:
            params.pop("mode", None)
            schema = params["requestedSchema"]
            properties = {name: _oldest_property(name, prop) for name, prop in schema.get("properties", {}).items()}
            params["requestedSchema"] = {**schema, "properties": properties}
    return {"method": request["method"], "params": params}


def _oldest_property(name: str, prop: Mapping[str, Any]) -> dict[str, Any]:
    if prop.get("type") == "array":
        raise CannotAsk(f"{name!r} takes several values, which forms of MCP {OLDEST} cannot")
    shown = {key: value for key, value in prop.items() if key not in ("oneOf", "default")}
    if prop.get("type") == "boolean" and "default" in prop:
        shown["default"] = prop["default"]
    if options := prop.get("oneOf"):
        shown["enum"] = [option["const"] for option in options]
        shown["enumNames"] = [option.get("title", option["const"]) for option in options]
    return shown
