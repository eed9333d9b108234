"""Requests of every method and revision that are right, for generators to change."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from tests.cases.client import FORMS, FULL
from tests.fuzz.values import changed, ids, odd, scalars, texts, values

MODERN: Final = "2026-07-28"
OLDER: Final = ("2025-11-25", "2025-06-18")
VERSIONS: Final = (MODERN, *OLDER, "2024-11-05", "1900-01-01", "")

CAPABILITIES: Final[list[Any]] = [
    {},
    FULL,
    FORMS,
    {**FULL, "elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}},
]
TOOLS: Final = ("echo", "work", "ask_form", "ask_model", "ask_roots", "quick", "nothing", "")

REQUESTS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("server/discover", {}),
    ("ping", {}),
    ("tools/list", {}),
    ("tools/list", {"cursor": "$cursor~3"}),
    ("tools/call", {"name": "echo", "arguments": {"x": [1, "a", None]}}),
    ("tools/call", {"name": "work", "arguments": {"seconds": 0.01}}),
    ("tools/call", {"name": "quick", "arguments": {"seconds": 0.01}}),
    ("tools/call", {"name": "ask_form", "arguments": {"schema": {"type": "object", "properties": {}}}}),
    (
        "tools/call",
        {
            "name": "ask_form",
            "arguments": {"schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "inputResponses": {"form": {"action": "accept", "content": {"a": "b"}}},
        },
    ),
    (
        "tools/call",
        {
            "name": "ask_form",
            "arguments": {"schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "requestState": "$state",
            "inputResponses": {"form": {"action": "accept", "content": {"a": "b"}}},
        },
    ),
    ("tools/call", {"name": "ask_form", "requestState": "$state~5", "inputResponses": {"form": {"action": "cancel"}}}),
    ("tasks/get", {"taskId": "$task"}),
    ("tasks/get", {"taskId": "$task~9"}),
    ("tasks/update", {"taskId": "$task", "inputResponses": {"no such key": {"action": "accept", "content": {}}}}),
    ("tasks/update", {"taskId": "$asking", "inputResponses": {"form": {"action": "accept", "content": {"a": "b"}}}}),
    ("tasks/cancel", {"taskId": "$victim"}),
    ("subscriptions/listen", {"notifications": {"taskIds": ["$task", "$victim", "x"]}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "$history"}),
    ("resources/read", {"uri": "mcp-task://no-such/history"}),
    ("prompts/list", {}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}}),
    ("logging/setLevel", {"level": "debug"}),
    ("no/such", {}),
]
NOTIFICATIONS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("notifications/initialized", {}),
    ("notifications/cancelled", {"requestId": 1, "reason": "enough"}),
    ("notifications/progress", {"progressToken": 1, "progress": 1}),
    ("notifications/no/such", {}),
    ("tasks/cancel", {"taskId": "$victim"}),
]


@st.composite
def modern_requests(draw: st.DrawFn) -> dict[str, Any]:
    """A right request of 2026-07-28, perhaps with a creation key or a progress token."""
    method, params = draw(st.sampled_from(REQUESTS))
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "fuzz", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": draw(st.sampled_from(CAPABILITIES)),
    }
    if draw(st.integers(0, 3)) == 0:
        meta["mcp-temporal-tasks/creationKey"] = draw(st.one_of(texts, scalars))
    if draw(st.integers(0, 3)) == 0:
        meta["progressToken"] = draw(ids)
    return {"jsonrpc": "2.0", "id": draw(ids), "method": method, "params": {**params, "_meta": meta}}


@st.composite
def older_messages(draw: st.DrawFn) -> dict[str, Any]:
    """A request, a notification or a response of the revisions before."""
    match draw(st.sampled_from(("request", "initialize", "notification", "response"))):
        case "initialize":
            params: dict[str, Any] = {
                "protocolVersion": draw(st.sampled_from(VERSIONS)),
                "capabilities": draw(st.sampled_from(CAPABILITIES)),
                "clientInfo": {"name": "fuzz", "version": "1"},
            }
            return {"jsonrpc": "2.0", "id": draw(ids), "method": "initialize", "params": params}
        case "notification":
            method, params = draw(st.sampled_from(NOTIFICATIONS))
            return {"jsonrpc": "2.0", "method": method, "params": params}
        case "response":
            result = draw(st.one_of(st.just({"action": "accept", "content": {"a": "b"}}), values))
            return {"jsonrpc": "2.0", "id": draw(st.one_of(ids, st.just("$question~4"))), "result": result}
        case _:
            method, params = draw(st.sampled_from(REQUESTS))
            return {"jsonrpc": "2.0", "id": draw(ids), "method": method, "params": params}


messages: Final = st.one_of(
    changed(modern_requests()),
    changed(older_messages()),
    st.lists(changed(modern_requests()), max_size=3),
    odd,
)
