"""Revisions 2025-11-25 and 2025-06-18 on the same endpoint: handshake, session token, questions, cancels."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from bridge.answering import MayNotAnswer
from bridge.envelope import SERVED_VERSIONS
from bridge.errors import EngineUnavailable, TaskNotFound, TooLarge
from bridge.identity import LOCAL
from bridge.seal import Seal
from tests.transport.toy import META, QUESTIONS, SESSIONS, Response, Served, eventually, rpc
from workflows.kit.contract import Principal

BARE: Mapping[str, str | None] = {"MCP-Protocol-Version": None, "Mcp-Method": None, "Mcp-Name": None}


def older(version: str, **more: str | None) -> dict[str, str | None]:
    return {**BARE, "MCP-Protocol-Version": version, **more}


def message(method: str, params: Mapping[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    return (
        {"jsonrpc": "2.0", "id": 1, "method": method} | ({} if params is None else {"params": dict(params)}) | members
    )


def initialize(version: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
    client = {"name": "old", "version": "1"}
    return message("initialize", {"protocolVersion": version, "capabilities": capabilities, "clientInfo": client})


async def session(served: Served, version: str = "2025-11-25", **capabilities: Any) -> dict[str, str | None]:
    """The headers of a client that has opened a session."""
    response = await served.post(initialize(version, **capabilities), BARE)
    return older(version, **{"Mcp-Session-Id": response.headers["mcp-session-id"]})


def question(method: str = "elicitation/create", seal: Seal = QUESTIONS, owner: Principal = LOCAL.principal) -> str:
    return seal.seal({"task": "task-1", "key": "k", "method": method}, owner)


def answer(request_id: str, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id} | (members or {"result": {"action": "accept", "content": {}}})


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2026-07-28", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
    ],
)
async def test_initialize_settles_on_a_revision_that_has_a_handshake(served: Served, asked: str, given: str) -> None:
    result = (await served.post(initialize(asked), BARE)).json["result"]
    assert result == {
        "protocolVersion": given,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "toy", "version": "1"},
    }


async def test_initialize_with_a_header_of_its_revision_is_a_handshake(served: Served) -> None:
    response = await served.post(initialize("2025-06-18"), older("2025-06-18"))
    assert response.json["result"]["protocolVersion"] == "2025-06-18"


async def test_initialize_under_the_new_revision_does_not_exist(served: Served) -> None:
    assert (await served.post(rpc("initialize"))).error == (404, -32601, 1)


@pytest.mark.parametrize(
    "params", [None, {}, {"protocolVersion": 1, "capabilities": {}}, {"protocolVersion": "2025-11-25"}]
)
async def test_a_malformed_handshake_is_an_error_not_a_session(served: Served, params: dict[str, Any] | None) -> None:
    response = await served.post(message("initialize", params), BARE)
    assert response.error == (200, -32602, 1)
    assert "mcp-session-id" not in response.headers


async def test_the_session_id_is_visible_ascii_and_of_modest_length(served: Served) -> None:
    token = (await session(served, elicitation={"form": {}, "url": {}}, sampling={}, roots={}))["Mcp-Session-Id"]
    assert token is not None
    assert all("!" <= character <= "~" for character in token)
    assert len(token) < 600


async def test_a_session_carries_what_its_client_declared_to_any_replica(served: Served) -> None:
    headers = await session(served, elicitation={"form": {}}, extensions={"io.modelcontextprotocol/tasks": {}})
    await served.post(message("tools/call", {"name": "echo"}), headers)
    peer = served.toy.exchanges[0].peer
    assert (peer.version, peer.capabilities) == ("2025-11-25", {"elicitation": {"form": {}}})


async def test_2025_06_18_knew_neither_urls_nor_sampling_with_tools(served: Served) -> None:
    headers = await session(served, "2025-06-18", elicitation={"url": {}}, sampling={"tools": {}})
    await served.post(message("tools/call", {"name": "echo"}), headers)
    assert served.toy.exchanges[0].peer.capabilities == {"elicitation": {}, "sampling": {}}


async def test_without_a_session_nothing_is_declared(served: Served) -> None:
    await served.post(message("tools/call", {"name": "echo"}), older("2025-06-18"))
    peer = served.toy.exchanges[0].peer
    assert (peer.version, peer.capabilities, peer.session) == ("2025-06-18", {}, None)


async def test_a_session_says_its_revision_where_the_header_is_missing(served: Served) -> None:
    headers = await session(served, "2025-06-18")
    await served.post(message("tools/call", {"name": "echo"}), headers | {"MCP-Protocol-Version": None})
    assert served.toy.exchanges[0].peer.version == "2025-06-18"


async def test_a_client_that_takes_no_stream_cannot_be_asked(served: Served) -> None:
    headers = await session(served, elicitation={})
    await served.post(message("tools/call", {"name": "echo"}), headers | {"Accept": "application/json"})
    assert served.toy.exchanges[0].peer.capabilities == {}


CLAIMS = {"version": "2025-11-25", "capabilities": {}, "session": "s"}


def tampered(token: str) -> str:
    return token[:-1] + ("A" if token[-1] != "A" else "B")


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "",
        tampered(SESSIONS.seal(CLAIMS, LOCAL.principal)),
        SESSIONS.seal(CLAIMS, Principal(issuer="i", subject="x")),
        Seal(["s" * 32], "session", timedelta(seconds=-1)).seal({"version": "2025-11-25"}, LOCAL.principal),
        Seal(["t" * 32], "session", timedelta(hours=1)).seal({"version": "2025-11-25"}, LOCAL.principal),
        QUESTIONS.seal(CLAIMS, LOCAL.principal),
    ],
    ids=["junk", "empty", "tampered", "another owner's", "expired", "unknown key", "another purpose"],
)
@pytest.mark.parametrize("what", [message("tools/list"), {"jsonrpc": "2.0", "method": "notifications/cancelled"}])
async def test_a_session_that_cannot_be_opened_is_404(served: Served, token: str, what: dict[str, Any]) -> None:
    response = await served.post(what, older("2025-11-25", **{"Mcp-Session-Id": token}))
    assert response.error == (404, -32600, what.get("id", "absent"))
    assert served.toy.cancelled_requests == []


@pytest.mark.parametrize("header", ["Mcp-Session-Id", "MCP-Protocol-Version"])
async def test_a_header_that_is_there_twice_is_refused(served: Served, header: str) -> None:
    headers = await session(served)
    twice = f"{headers[header]}\r\n{header}: 2026-07-28"
    assert (await served.post(message("tools/list"), headers | {header: twice})).error == (400, -32020, 1)


async def test_a_revision_that_is_not_served_is_refused_with_those_that_are(served: Served) -> None:
    headers = await session(served)
    response = await served.post(message("tools/list"), headers | {"MCP-Protocol-Version": "2025-03-26"})
    assert response.error == (400, -32022, 1)
    assert response.json["error"]["data"] == {"supported": list(SERVED_VERSIONS), "requested": "2025-03-26"}


async def test_an_envelope_that_names_an_older_revision_is_refused_without_offering_it(served: Served) -> None:
    meta = META | {"io.modelcontextprotocol/protocolVersion": "2025-11-25"}
    response = await served.post(rpc("tools/list", {"_meta": meta}), {"MCP-Protocol-Version": "2025-11-25"})
    assert response.error == (400, -32022, 1)
    assert response.json["error"]["data"]["supported"] == ["2026-07-28", "2025-06-18"]


async def test_ping_is_answered(served: Served) -> None:
    assert (await served.post(message("ping"), await session(served))).json["result"] == {}


@pytest.mark.parametrize("method", ["server/discover", "tasks/get", "tasks/cancel", "subscriptions/listen", "unknown"])
async def test_what_is_newer_or_unknown_does_not_exist_and_is_no_lost_session(served: Served, method: str) -> None:
    response = await served.post(message(method, {"taskId": "T"}), await session(served))
    assert response.error == (200, -32601, 1)


async def test_results_have_nothing_of_the_new_revision(served: Served) -> None:
    headers = await session(served)
    listed = (await served.post(message("tools/list"), headers)).json["result"]
    called = (await served.post(message("tools/call", {"name": "echo", "arguments": {"a": 1}}), headers)).json["result"]
    assert listed.keys() == {"tools"}
    assert called == {"content": [], "structuredContent": {"a": 1}}


async def test_a_notification_is_accepted(served: Served) -> None:
    response = await served.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, await session(served))
    assert (response.status, response.body) == (202, b"")


async def test_a_cancel_names_the_request_within_its_session(served: Served) -> None:
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7, "reason": "no"}}
    headers = await session(served)
    assert (await served.post(cancel, headers)).status == 202
    [(name, request_id)] = served.toy.cancelled_requests
    assert (request_id, name is None) == (7, False)
    await served.post(cancel, await session(served))
    assert served.toy.cancelled_requests[1][0] != name


@pytest.mark.parametrize("params", [{}, {"requestId": None}, {"requestId": True}, {"requestId": [1]}])
async def test_a_malformed_cancel_is_accepted_and_ignored(served: Served, params: dict[str, Any]) -> None:
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    assert (await served.post(cancel, await session(served))).status == 202
    assert served.toy.cancelled_requests == []


async def test_a_client_that_leaves_has_cancelled_nothing(served: Served) -> None:
    headers = await session(served)
    async with served.connect() as wire:
        await wire.post(message("tools/call", {"name": "wait"}), headers)
        await eventually(lambda: served.toy.started == ["wait"], "the call has begun")
    await eventually(lambda: served.toy.ended == ["wait"], "the handler has ended")
    await asyncio.sleep(0.05)
    assert served.toy.undone == []


async def test_a_call_that_the_server_interrupts_is_undone(served: Served) -> None:
    headers = await session(served)
    await served.post(message("tools/call", {"name": "self_cancel"}), headers)
    assert served.toy.undone == ["self_cancel"]


async def test_a_question_goes_out_on_the_call_s_own_stream(served: Served) -> None:
    headers = await session(served, elicitation={})
    async with served.connect() as wire:
        await wire.post(message("tools/call", {"name": "ask"}), headers)
        _, head = await wire.response_head()
        assert head["content-type"] == "text/event-stream"
        first = await anext(aiter(wire.chunks()))
        assert b'{"jsonrpc":"2.0","id":"ask-1","method":"elicitation/create"' in first
        served.toy.release.set()


@pytest.mark.parametrize("with_session", [True, False])
async def test_an_answer_is_delivered_with_or_without_the_session(served: Served, with_session: bool) -> None:
    headers = await session(served) if with_session else dict(BARE)
    response = await served.post(answer(question()), headers)
    assert (response.status, response.body) == (202, b"")
    assert served.toy.delivered == [("task-1", {"k": {"action": "accept", "content": {}}}, "http")]


@pytest.mark.parametrize("failure", [TooLarge(), MCPError(-32602, "no")])
async def test_an_answer_that_cannot_be_used_counts_as_cancel(served: Served, failure: Exception) -> None:
    served.toy.unusable = failure
    assert (await served.post(answer(question()), BARE)).error == (400, -32602, "absent")
    assert served.toy.delivered == [("task-1", {"k": {"action": "cancel"}}, "http")]


async def test_an_answer_that_is_somebody_elses_to_give_is_refused_and_cancels_nothing(served: Served) -> None:
    served.toy.unusable = MayNotAnswer("k", "a member of the group managers")
    assert (await served.post(answer(question()), BARE)).error == (400, -32602, "absent")
    served.toy.deliveries_fail = served.toy.unusable
    refusal = {"error": {"code": -1, "message": "no"}}
    assert (await served.post(answer(question(), **refusal), BARE)).status == 202
    assert served.toy.delivered == []


async def test_an_answer_that_is_no_object_counts_as_cancel(served: Served) -> None:
    assert (await served.post(answer(question(), result=[]), BARE)).status == 202
    assert served.toy.delivered == [("task-1", {"k": {"action": "cancel"}}, "http")]


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Mcp-Session-Id": "junk"}, 404), ({"MCP-Protocol-Version": "2020-01-01"}, 400)],
)
async def test_an_answer_with_a_wrong_session_or_revision_is_refused(
    served: Served, headers: dict[str, str | None], status: int
) -> None:
    assert (await served.post(answer(question()), {**BARE, **headers})).status == status
    assert served.toy.delivered == []


async def test_an_error_answer_counts_as_cancel(served: Served) -> None:
    assert (await served.post(answer(question(), error={"code": -1, "message": "no"}), BARE)).status == 202
    assert served.toy.delivered == [("task-1", {"k": {"action": "cancel"}}, "http")]


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list"])
async def test_an_error_answer_to_what_has_no_cancel_ends_the_work(served: Served, method: str) -> None:
    assert (await served.post(answer(question(method), error={"code": -1, "message": "no"}), BARE)).status == 202
    assert served.toy.cancelled_tasks == ["task-1"]


async def test_an_error_answer_to_a_question_that_is_closed_ends_nothing(served: Served) -> None:
    served.toy.open = False
    error = {"code": -1, "message": "too late"}
    assert (await served.post(answer(question("sampling/createMessage"), error=error), BARE)).status == 202
    assert served.toy.cancelled_tasks == []


@pytest.mark.parametrize(
    "request_id",
    [
        "1",
        tampered(question()),
        question(owner=Principal(issuer="i", subject="x")),
        question(seal=Seal(["s" * 32], "question", timedelta(seconds=-1))),
        question(seal=SESSIONS),
    ],
    ids=["junk", "tampered", "another owner's", "expired", "another purpose"],
)
async def test_an_answer_to_nothing_of_ours_is_refused_and_does_nothing(served: Served, request_id: str) -> None:
    assert (await served.post(answer(request_id), BARE)).error == (400, -32600, "absent")
    assert served.toy.delivered == []


async def test_an_answer_to_a_question_that_is_gone_is_accepted(served: Served) -> None:
    served.toy.deliveries_fail = TaskNotFound()
    assert (await served.post(answer(question()), BARE)).status == 202


async def test_an_answer_that_cannot_be_delivered_is_refused_by_its_status(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.older.OUTAGE_PAUSES", (0.01,))
    served.toy.deliveries_fail = EngineUnavailable()
    response: Response = await served.post(answer(question()), BARE)
    assert response.error == (503, -32603, "absent")


async def test_a_response_under_the_new_revision_is_refused(served: Served) -> None:
    response = await served.post(answer(question()), {"MCP-Protocol-Version": "2026-07-28"})
    assert response.error == (400, -32600, "absent")
    assert served.toy.delivered == []


async def test_an_answer_is_delivered_though_its_client_does_not_wait(served: Served) -> None:
    served.toy.slow_delivery = asyncio.Event()
    async with served.connect() as wire:
        await wire.post(answer(question()), BARE)
        await eventually(lambda: served.toy.delivering == 1, "the delivery has begun")
    await asyncio.sleep(0.05)
    served.toy.slow_delivery.set()
    await eventually(lambda: len(served.toy.delivered) == 1, "the delivery")
