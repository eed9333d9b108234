"""Which scopes a message needs, decided from the message alone, before anything is run: a 403 must be an HTTP answer.

What is not named here needs a valid token and no scope: the handshake, `server/discover`, `ping`, and methods that do
not exist, whose answer says so. Whose task it is about is decided where the task is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from mcp_types import INVALID_REQUEST

from bridge.identity import Identity, Scope
from bridge.jsonrpc import Message, Refusal, Request, Response

ToolScopes = Callable[[str], Collection[str]]
"""What a tool asks for beside `tasks:call`; nothing for one that does not exist."""

METHOD_SCOPES: Final[Mapping[str, Scope]] = {
    "tools/call": Scope.CALL,
    "tools/list": Scope.READ,
    "tasks/get": Scope.READ,
    "tasks/update": Scope.ANSWER,
    "tasks/cancel": Scope.CALL,
    "subscriptions/listen": Scope.READ,
    "resources/list": Scope.READ,
    "resources/templates/list": Scope.READ,
    "resources/read": Scope.READ,
    "prompts/list": Scope.READ,
    "prompts/get": Scope.READ,
    "completion/complete": Scope.READ,
    "notifications/cancelled": Scope.CALL,
}


class InsufficientScope(Refusal):
    """HTTP 403; `scopes` are all that the operation needs."""

    def __init__(self, scopes: Collection[str]) -> None:
        super().__init__(
            INVALID_REQUEST, f"The credentials are not good for this, which needs: {' '.join(scopes)}", status=403
        )
        self.scopes = scopes


def needed_scopes(message: Message, tool_scopes: ToolScopes) -> list[str]:
    """All that `message` needs, each once, in a fixed order. A call that brings answers along answers, too."""
    if isinstance(message, Response):
        return [Scope.ANSWER]
    method, params = message.method, message.params
    needed: list[str] = [METHOD_SCOPES[method]] if method in METHOD_SCOPES else []
    if method == "tools/call":
        name = params.get("name")
        needed += tool_scopes(name) if isinstance(name, str) else ()
        if params.get("inputResponses"):
            needed.append(Scope.ANSWER)
    return list(dict.fromkeys(needed))


def check_scopes(message: Message, identity: Identity, tool_scopes: ToolScopes) -> None:
    """Raise InsufficientScope unless the credentials are good for `message`. An operator may cancel without being
    allowed to call.
    """
    if isinstance(message, Request) and message.method == "tasks/cancel" and identity.has(Scope.OPERATE):
        return
    needed = needed_scopes(message, tool_scopes)
    if not all(identity.has(scope) for scope in needed):
        raise InsufficientScope(needed)
