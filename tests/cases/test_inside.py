"""AU-09: errors speak of the request, and never of how the house is built."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
import pytest_asyncio

from bridge.call import CREATION_KEY
from bridge.dev_server import free_port
from tests.cases.client import FORMS, McpClient, accept
from tests.cases.stack import Process, Stack
from tests.fuzz.checks import INSIDE
from tests.stdio.client import StdioClient, request
from tests.support import unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

WRONG: Final[list[tuple[str, dict[str, Any], dict[str, Any]]]] = [
    ("no/such", {}, {}),
    ("tools/call", {}, {}),
    ("tools/call", {"name": "no_such_tool", "arguments": {}}, {}),
    ("tools/call", {"name": 5}, {}),
    ("tools/call", {"name": "slow", "arguments": {"seconds": "x"}}, {}),
    ("tools/call", {"name": "slow", "arguments": []}, {}),
    ("tools/call", {"name": "ask", "arguments": {"n": 1}, "requestState": "spoilt"}, {}),
    ("tools/call", {"name": "ask", "arguments": {"n": 1}, "inputResponses": [1]}, {}),
    ("tools/call", {"name": "ask", "arguments": {"n": 1}}, {"capabilities": {}}),
    ("tools/call", {"name": "handle_only", "arguments": {"seconds": 1}}, {"capabilities": {}}),
    ("tools/call", {"name": "echo_task", "arguments": {"x": "x" * 2_000_000}}, {}),
    ("tools/call", {"name": "echo_task"}, {"meta": {CREATION_KEY: 5}}),
    ("tools/list", {"cursor": "no such cursor"}, {}),
    ("tools/list", {"cursor": 5}, {}),
    ("tasks/get", {}, {}),
    ("tasks/get", {"taskId": "no-such-task"}, {}),
    ("tasks/get", {"taskId": "x" * 2_000}, {}),
    ("tasks/get", {"taskId": "x"}, {"capabilities": {}}),
    ("tasks/update", {"taskId": "no-such-task", "inputResponses": {}}, {}),
    ("tasks/update", {"taskId": "no-such-task"}, {}),
    ("tasks/cancel", {"taskId": "no-such-task"}, {}),
    ("subscriptions/listen", {"notifications": 5}, {}),
    ("resources/read", {"uri": "mcp-task://no-such-task/history"}, {}),
    ("resources/read", {"uri": "mcp-task://x/history"}, {"headers": {"Mcp-Name": "mcp-task://x/history"}}),
    ("resources/read", {"uri": "file:///etc/passwd"}, {"headers": {"Mcp-Name": "file:///etc/passwd"}}),
    ("server/discover", {}, {"meta": {"io.modelcontextprotocol/protocolVersion": "1900-01-01"}}),
    ("server/discover", {}, {"meta": {"io.modelcontextprotocol/clientCapabilities": 5}}),
    ("server/discover", {}, {"meta": {"io.modelcontextprotocol/clientInfo": 5}}),
]
KINDS: Final = ("python", "keyerror", "assert", "base", "unserialisable", "generator", "chain", "mute", "details",
                "no_detail", "child", "activity", "argument")  # fmt: skip


def texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    match value:
        case str():
            yield value
        case dict():
            for name, inner in value.items():
                yield name
                yield from texts(inner)
        case list():
            for inner in value:
                yield from texts(inner)
        case _:
            return


def assert_tells_nothing(error: Any) -> None:
    """Nothing in it is about the inside."""
    for text in texts(error):
        assert INSIDE.search(text) is None, text


@pytest.mark.parametrize(("method", "params", "changes"), WRONG, ids=lambda value: str(value)[:30])
async def test_the_error_of_a_wrong_request_tells_nothing(
    client: McpClient, pipe: StdioClient, method: str, params: dict[str, Any], changes: dict[str, Any]
) -> None:
    reply = await client.request(method, params, **changes)
    message = reply.message
    assert "error" in message or message["result"].get("isError") or method == "subscriptions/listen", message
    assert_tells_nothing(message.get("error", message.get("result")))
    if not changes:
        assert_tells_nothing((await pipe.ask(request(method, params), within=60)).get("error"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("waits", [False, True], ids=["task", "call"])
async def test_the_failure_of_a_tool_tells_nothing(client: McpClient, kind: str, waits: bool) -> None:
    arguments = {"kind": kind, "message": "boom"}
    if waits:
        assert_tells_nothing((await client.call("boom", arguments, capabilities={})).message)
    else:
        assert_tells_nothing(await client.finished(await client.start("boom", arguments)))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def alone(stack: Stack) -> Process:
    """A bridge whose Temporal is not there."""
    return await stack.bridge(TEMPORAL_ADDRESS=f"127.0.0.1:{free_port()}")


@pytest_asyncio.fixture(loop_scope="session")
async def cut(alone: Process) -> AsyncIterator[McpClient]:
    """A client of that bridge."""
    async with McpClient(alone.url) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "echo_task", "arguments": {"x": 1}}),
        ("tasks/get", {"taskId": "task-1"}),
        ("tasks/update", {"taskId": "task-1", "inputResponses": {"k": accept()}}),
        ("tasks/cancel", {"taskId": "task-1"}),
        ("resources/read", {"uri": "mcp-task://task-1/history"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_the_error_of_an_outage_tells_nothing(cut: McpClient, method: str, params: dict[str, Any]) -> None:
    headers = {"Mcp-Name": params["uri"]} if "uri" in params else {}
    error = (await cut.request(method, params, headers=headers)).message["error"]
    assert error["code"] == -32603 and error["data"] == {"retryAfterMs": 1000}
    assert_tells_nothing(error)


BIG: Final = "x" * 300_000


@pytest.mark.parametrize(
    ("method", "params", "changes"),
    [
        (BIG, {}, {"headers": {"Mcp-Method": "x"}}),
        ("no/such", {BIG: BIG}, {}),
        ("tools/call", {"name": BIG}, {"headers": {"Mcp-Name": "x"}}),
        ("tools/call", {"name": "slow", "arguments": {"seconds": BIG}}, {}),
        ("tools/call", {"name": "slow", "arguments": {"seconds": 1, "cancellation": BIG}}, {}),
        ("tools/call", {"name": "ask", "arguments": {"n": 1}, "inputResponses": {BIG: 5}}, {}),
        ("tasks/get", {"taskId": BIG}, {"headers": {"Mcp-Name": "x"}}),
        ("resources/read", {"uri": f"file:///{BIG}"}, {"headers": {"Mcp-Name": "x"}}),
        ("server/discover", {}, {"meta": {"io.modelcontextprotocol/protocolVersion": BIG}}),
        ("tools/call", {"name": "echo_task"}, {"meta": {CREATION_KEY: BIG}}),
    ],
    ids=["method", "member", "tool", "argument", "literal", "key", "task", "uri", "version", "creation key"],
)
async def test_an_error_does_not_send_back_what_was_sent(
    client: McpClient, pipe: StdioClient, method: str, params: dict[str, Any], changes: dict[str, Any]
) -> None:
    message = (await client.request(method, params, **changes)).message
    assert len(json.dumps(message)) < 10_000
    of_meta = {"meta": changes["meta"]} if "meta" in changes else {}
    sent = request(method, params)
    sent["params"]["_meta"] |= of_meta.get("meta", {})
    assert len(json.dumps(await pipe.ask(sent, within=60))) < 10_000


async def test_the_refusal_of_an_answer_does_not_send_it_back(client: McpClient) -> None:
    task_id = await client.start("profile")
    (key,) = await client.parked(task_id)
    wrong: list[dict[str, Any]] = [{BIG: 1}, {"tier": BIG}, {"tags": [BIG]}, {"age": BIG}]
    for content in wrong:
        reply = await client.update(task_id, {key: accept(name="x", **content)})
        assert reply.code == -32602 and len(json.dumps(reply.message)) < 2_000
    label = unique("x")
    asked = (await client.call("ask_named", {"label": label}, capabilities=FORMS)).result
    retried = await client.call(
        "ask_named", {"label": label}, state=asked["requestState"], responses={"name": accept(text="x", **{BIG: 1})},
        capabilities=FORMS,
    )  # fmt: skip
    assert retried.code == -32602 and len(json.dumps(retried.message)) < 2_000
