"""Which revision a request is of, and what its client gets of it: several revisions on one pipe."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.cases.client import FORMS, FULL, TASKS
from tests.stdio.client import OLDER, StdioClient, call, older_call, older_request, request

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_discovery_is_the_first_word_of_a_modern_client(server: StdioClient) -> None:
    discovered = await server.result(request("server/discover"))
    assert discovered["supportedVersions"] == ["2026-07-28", "2025-11-25", "2025-06-18"]
    assert discovered["capabilities"]["extensions"] == {TASKS: {}}


@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call", "tasks/get", "nonsense"])
async def test_a_client_that_says_nothing_of_itself_learns_at_once_what_is_served(
    server: StdioClient, method: str
) -> None:
    response = await server.ask(older_request(method))
    assert response["error"]["code"] == -32602
    assert response["error"]["data"]["supported"] == ["2026-07-28", "2025-11-25", "2025-06-18"]
    assert "initialize" in response["error"]["message"]


async def test_ping_is_answered_before_the_handshake(server: StdioClient) -> None:
    assert await server.result(older_request("ping")) == {}


@pytest.mark.parametrize(
    ("asked", "answered"), [("2025-06-18", "2025-06-18"), (OLDER, OLDER), ("2026-07-28", OLDER), ("2024-11-05", OLDER)]
)
async def test_an_older_client_gets_a_whole_session(server: StdioClient, asked: str, answered: str) -> None:
    welcome = await server.initialize(asked, {"extensions": {TASKS: {}}, "elicitation": {}})
    assert welcome["protocolVersion"] == answered
    assert welcome["capabilities"].keys() == {"tools", "resources"}
    listed = await server.result(older_request("tools/list"))
    assert {"echo", "slow"} <= {tool["name"] for tool in listed["tools"]}
    called = await server.result(older_call("slow", {"seconds": 0.1}))
    assert called["structuredContent"] == {"steps": 1}
    for result in (listed, called):
        assert not {"resultType", "ttlMs", "cacheScope"} & result.keys()
    assert await server.result(older_request("ping")) == {}
    for method in ("tasks/get", "tasks/list", "server/discover"):
        assert (await server.ask(older_request(method)))["error"]["code"] == -32601


async def test_initialize_without_what_it_needs_is_refused_and_opens_nothing(server: StdioClient) -> None:
    response = await server.ask(older_request("initialize", {"protocolVersion": OLDER}))
    assert response["error"]["code"] == -32602
    assert (await server.ask(older_request("tools/list")))["error"]["code"] == -32602


async def test_initialize_with_an_envelope_is_a_handshake_all_the_same(server: StdioClient) -> None:
    params = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    assert (await server.result(request("initialize", params)))["protocolVersion"] == OLDER
    assert "tools" in await server.result(older_request("tools/list"))


async def test_a_second_handshake_takes_the_place_of_the_first(server: StdioClient) -> None:
    await server.initialize("2025-06-18")
    refused = await server.result(older_call("ask"))
    assert refused["isError"] is True
    await server.initialize(OLDER, {"elicitation": {}})
    await server.send(older_call("ask", id="asks"))
    (question,) = await server.asked()
    await server.send(
        {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"text": "y"}}}
    )
    assert (await server.response("asks"))["result"]["structuredContent"]["answers"] == [["Question 0", "y"]]


async def test_both_revisions_are_served_on_one_pipe(server: StdioClient) -> None:
    await server.initialize()
    task_id = await server.start("slow", {"seconds": 0.5})
    older = await server.result(older_call("slow", {"seconds": 0.1}))
    assert "resultType" not in older
    assert (await server.finished(task_id))["status"] == "completed"
    assert (await server.result(request("server/discover")))["resultType"] == "complete"
    assert (await server.ask(older_request("tasks/get", {"taskId": task_id})))["error"]["code"] == -32601


UNSERVED: Final[list[tuple[Any, int, list[str] | None]]] = [
    (OLDER, -32022, ["2026-07-28", "2025-06-18"]),
    ("1900-01-01", -32022, ["2026-07-28", "2025-11-25", "2025-06-18"]),
    ("2026-07-28 ", -32022, ["2026-07-28", "2025-11-25", "2025-06-18"]),
    (20260728, -32602, None),
    (None, -32602, None),
]


@pytest.mark.parametrize("after_handshake", [False, True])
async def test_a_version_that_is_not_served_this_way_is_refused_with_those_that_are(
    server: StdioClient, after_handshake: bool
) -> None:
    if after_handshake:
        await server.initialize()
    for version, code, supported in UNSERVED:
        error = (await server.ask(call("slow", {"seconds": 0.1}, version=version)))["error"]
        assert error["code"] == code
        if supported is not None:
            assert error["data"] == {"supported": supported, "requested": version}


async def test_capabilities_count_for_their_own_request_only(server: StdioClient) -> None:
    declaring = [call("slow", {"seconds": 0.2}, capabilities=FULL, name=f"client {n}") for n in range(4)]
    plain = [call("slow", {"seconds": 0.2}, capabilities=FORMS if n % 2 else {}) for n in range(4)]
    alternating = [message for pair in zip(declaring, plain, strict=True) for message in pair]
    await server.send(*alternating)
    for message in declaring:
        assert (await server.response(message["id"]))["result"]["resultType"] == "task"
    for message in plain:
        assert (await server.response(message["id"]))["result"]["resultType"] == "complete"
    task_id = (await server.response(declaring[0]["id"]))["result"]["taskId"]
    refused = await server.ask(request("tasks/get", {"taskId": task_id}, capabilities={}))
    assert refused["error"]["code"] == -32021
    assert (await server.get(task_id))["taskId"] == task_id
