"""What a client declared, and what it would have to declare: on this very request, or, before 2026-07-28, in its
handshake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from workflows.kit.questions import ELICITATION, can_be_asked

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"

_KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "elicitation": ("form", "url"),
    "sampling": ("tools", "context"),
    "roots": (),
}


def declares_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Whether the Tasks extension is declared: with an object, under its exact name, and not as the legacy `tasks`
    capability.
    """
    extensions = capabilities.get("extensions")
    return isinstance(extensions, Mapping) and isinstance(extensions.get(TASKS_EXTENSION), Mapping)


def require_tasks(capabilities: Mapping[str, Any]) -> None:
    """Raises MCPError -32021 if the Tasks extension is not declared."""
    if not declares_tasks(capabilities):
        raise missing({"extensions": {TASKS_EXTENSION: {}}})


def require(needed: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
    """Raises MCPError -32021 naming the members of `needed` that are not declared."""
    lacking = {name: shape for name, shape in needed.items() if not _covers(name, shape, capabilities.get(name))}
    if lacking:
        raise missing(lacking)


def require_askable(requests: Mapping[str, Mapping[str, Any]], capabilities: Mapping[str, Any]) -> None:
    """Raises MCPError -32021 if this client may not be sent one of these input requests: all are shown, or none."""
    for request in requests.values():
        if not can_be_asked(capabilities, request):
            raise missing(_needed_for(request))


def askable(requests: Mapping[str, Mapping[str, Any]], capabilities: Mapping[str, Any]) -> bool:
    """Whether this client may be sent all of these input requests."""
    return all(can_be_asked(capabilities, request) for request in requests.values())


def missing(needed: Mapping[str, Any]) -> MCPError:
    """The error that tells a client what to declare; `requiredCapabilities` has the shape of capabilities, not a
    list.
    """
    names = ", ".join(needed.get("extensions", needed))
    return MCPError(
        code=MISSING_REQUIRED_CLIENT_CAPABILITY,
        message=f"This needs a client capability that the request did not declare: {names}",
        data={"requiredCapabilities": dict(needed)},
    )


def bounded(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """What of `capabilities` decides which questions may be asked; small, whatever the client sent."""
    return {
        name: {member: {} for member in members if isinstance(capabilities[name].get(member), Mapping)}
        for name, members in _KNOWN.items()
        if isinstance(capabilities.get(name), Mapping)
    }


def _covers(name: str, needed: Any, declared: Any) -> bool:
    if not isinstance(declared, Mapping):
        return False
    if name == "elicitation" and (not needed or "form" in needed):
        return can_be_asked({"elicitation": declared}, {"method": ELICITATION})
    return all(_covers("", shape, declared.get(member)) for member, shape in needed.items())


def _needed_for(request: Mapping[str, Any]) -> dict[str, Any]:
    if request["method"] == ELICITATION:
        mode = request.get("params", {}).get("mode", "form")
        return {"elicitation": {mode: {}} if mode != "form" else {}}
    if request["method"] == "sampling/createMessage":
        return {"sampling": {"tools": {}} if "tools" in request.get("params", {}) else {}}
    return {"roots": {}}
