"""What a client says of itself, and in which revision of MCP.

In 2026-07-28 every request carries it (`params._meta`, basic/index "Per-request protocol fields"); before, a handshake
settled it once. Handlers see the same `Peer` either way. A request is of the new kind if it carries the version in its
`_meta`, whatever came before it on the same connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    INVALID_PARAMS,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)

from bridge.jsonrpc import MAX_ECHO_CHARS, Notification, Refusal, Request
from workflows.kit.contract import cut

MODERN_VERSIONS: Final = ("2026-07-28",)
OLDER_VERSIONS: Final = ("2025-11-25", "2025-06-18")
"""Revisions that open with `initialize`, newest first. Those before have batches, and are not served."""

SERVED_VERSIONS: Final = MODERN_VERSIONS + OLDER_VERSIONS

NO_RESPONSES: Final = "JSON-RPC responses are not accepted; answers belong in tasks/update or in a retried call"
"""What a client hears that answers a request of ours, where there are none."""

_NO_META: Final = (
    f"params._meta must be an object with {PROTOCOL_VERSION_META_KEY!r} and {CLIENT_CAPABILITIES_META_KEY!r}; "
    f"clients of {' and '.join(OLDER_VERSIONS)} open with initialize instead"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The client of one request.

    `session` names what a handshake opened: the ids of such a client's requests are unique within it.
    """

    version: str
    capabilities: Mapping[str, Any]
    info: Any = None
    session: str | None = None

    @property
    def modern(self) -> bool:
        """Whether it speaks a revision without handshake and without requests from the server."""
        return self.version in MODERN_VERSIONS


def carries_version(message: Request | Notification) -> bool:
    """Whether the message says for itself which revision it is of."""
    meta = message.params.get("_meta")
    return isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta


def classify(message: Request, headers: Mapping[str, str] | None = None) -> InboundModernRoute | Refusal:
    """What the envelope says, checked in the specification's order; `headers` are the routing headers over HTTP."""
    verdict = classify_inbound_request({"method": message.method, "params": message.params}, headers=headers)
    if isinstance(verdict, InboundModernRoute):
        return verdict
    if verdict.code == UNSUPPORTED_PROTOCOL_VERSION:
        return unsupported_version(message.params["_meta"][PROTOCOL_VERSION_META_KEY], message)
    if verdict.code == INVALID_PARAMS and not carries_version(message):
        # All that a client of another revision may ever see of us: it should learn what to speak
        return Refusal(verdict.code, _NO_META, request_id=message.id, data={"supported": list(SERVED_VERSIONS)})
    return Refusal(verdict.code, verdict.message, request_id=message.id, data=verdict.data)


def peer_of(route: InboundModernRoute, message: Request) -> Peer:
    """The client that `message` comes from. Raises Refusal (-32602) if its capabilities are no object."""
    if not isinstance(route.client_capabilities, Mapping):
        reason = f"params._meta[{CLIENT_CAPABILITIES_META_KEY!r}] must be an object"
        raise Refusal(INVALID_PARAMS, reason, request_id=message.id)
    return Peer(version=route.protocol_version, capabilities=route.client_capabilities, info=route.client_info)


def unsupported_version(requested: str, message: Request | None = None) -> Refusal:
    """The refusal of a version that is not served this way (-32022); what it offers never has the one it refuses."""
    served = [version for version in SERVED_VERSIONS if version != requested]
    known = f"; {requested} is served to clients that open with initialize" if requested in OLDER_VERSIONS else ""
    return Refusal(
        UNSUPPORTED_PROTOCOL_VERSION,
        f"Unsupported protocol version{known}",
        request_id=None if message is None else message.id,
        data={"supported": served, "requested": cut(requested, MAX_ECHO_CHARS)},
    )


def checked_envelope(message: Request) -> Peer:
    """The client of a request that came without headers (stdio). Raises Refusal: -32602, -32022."""
    verdict = classify(message)
    if isinstance(verdict, Refusal):
        raise verdict
    return peer_of(verdict, message)
