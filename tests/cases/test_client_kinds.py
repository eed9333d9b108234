"""Every kind of client on one endpoint (CC, and what of PE-10 and CR-08 is about calls): each request is served by what
it says of itself, and a quick tool is worth a wait to a client that could have had a task.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import pytest
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from tests.cases.client import FORMS, FULL, TASKS, McpClient, Reply, accept, sentinel
from tests.cases.counts import all_finished, counts
from tests.cases.stack import Programs, Stack
from tests.encryption import value_of
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

HANDLES: Final[Mapping[str, Any]] = {"extensions": {TASKS: {}}}
MODERN: Final = "2026-07-28"
OLDER: Final = ("2025-11-25", "2025-06-18")
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
PROMPT_SECONDS: Final = 3.0


async def labelled(engine: Client, workflow_type: str, label: str) -> WorkflowExecution | None:
    """The one run of a tool with this label, as soon as it is listed."""
    found = []
    async for run in engine.list_workflows(f"WorkflowType = '{workflow_type}'"):
        history = await engine.get_workflow_handle(run.id).fetch_history()
        payloads = history.events[0].workflow_execution_started_event_attributes.input.payloads
        if value_of(payloads[0]).get("label") == label:
            found.append(run)
    assert len(found) <= 1
    return found[0] if found else None


# A quick tool


async def timed(awaited: Any) -> tuple[Any, float]:
    """What `awaited` gives, and after how many seconds."""
    clock = asyncio.get_running_loop().time
    began = clock()
    return await awaited, clock() - began


async def test_a_quick_call_of_a_client_that_takes_tasks_is_answered_with_its_result(client: McpClient) -> None:
    label = unique("quick")
    reply, took = await timed(client.call("quick", {"label": label}))
    assert (reply.result["resultType"], reply.result["structuredContent"]) == ("complete", {"label": label})
    assert "taskId" not in reply.result
    assert took < 10
    assert await client.count(label) == 1


async def test_a_call_that_takes_longer_than_its_tool_may_wait_becomes_a_task(client: McpClient) -> None:
    label = unique("hasty")
    reply = await client.call("hasty", {"label": label, "seconds": 2})
    assert (reply.result["resultType"], reply.result["status"]) == ("task", "working")
    task = await client.finished(reply.result["taskId"])
    assert (task["status"], task["result"]["structuredContent"]) == ("completed", {"label": label})
    assert await client.count(label) == 1


async def test_a_question_ends_the_wait_for_a_quick_result_at_once(client: McpClient) -> None:
    reply, took = await timed(client.call("quick", {"end": "question"}))
    assert reply.result["resultType"] == "task"
    assert took < 10  # its tool might have waited 20 seconds
    (key,) = (await client.get(reply.result["taskId"])).result["inputRequests"]
    await client.update(reply.result["taskId"], {key: accept(text="yes")})
    task = await client.finished(reply.result["taskId"])
    assert task["result"]["structuredContent"] == {"answer": "yes"}


async def test_a_quick_failure_is_the_answer_of_the_call(client: McpClient) -> None:
    reply = await client.call("quick", {"end": "tool error"})
    assert (reply.result["resultType"], reply.result["isError"]) == ("complete", True)
    reply = await client.call("quick", {"end": "error"})
    assert reply.message["error"] == {"code": 4711, "message": "closed", "data": {"opens": "tomorrow"}}


async def test_a_client_without_tasks_waits_for_a_quick_tool_as_for_any_other(client: McpClient) -> None:
    label = unique("hasty-plain")
    reply = await client.call("hasty", {"label": label, "seconds": 2}, capabilities={})
    assert (reply.result["resultType"], reply.result["structuredContent"]) == ("complete", {"label": label})


async def test_leaving_while_a_quick_result_may_still_come_cancels_the_run(client: McpClient, engine: Client) -> None:
    label = unique("quick-left")
    calling = asyncio.create_task(client.call("quick", {"label": label, "seconds": 15}))

    async def started() -> WorkflowExecution | None:
        return await labelled(engine, "quick", label)

    assert (await eventually(started, what="the run")).close_time is None
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)

    async def ended() -> WorkflowExecution | None:
        run = await started()
        return run if run and run.close_time else None

    assert (await eventually(ended, what="the end of the run")).status is WorkflowExecutionStatus.CANCELED
    assert await client.count(label) == 0


async def test_a_quick_tool_without_a_worker_becomes_a_task_all_the_same(stack: Stack) -> None:
    bridge = await stack.bridge(MCP_TASKS_TASK_QUEUE=unique("nobody"))
    async with McpClient(bridge.url) as client:
        reply, took = await timed(client.call("hasty"))
        assert (reply.result["resultType"], reply.result["status"]) == ("task", "working")
        assert took < 5
        await client.cancel(reply.result["taskId"])


# CC-01


async def raw(client: McpClient, message: Mapping[str, Any], **headers: str) -> tuple[Reply, Mapping[str, str]]:
    """POST `message` with no header of MCP but those given; the reply and its headers."""
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"} | headers
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PROMPT_SECONDS)) as session,
        session.post(client.url, json=message, headers=sent) as response,
    ):
        body = await response.text()
        return Reply(response.status, json.loads(body) if body else {}, []), response.headers


def request(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method} | ({} if params is None else {"params": params})


def initialize(version: str, capabilities: Mapping[str, Any] = FULL) -> dict[str, Any]:
    info = {"name": "qa", "version": "1"}
    return request("initialize", {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info})


@pytest.mark.parametrize("asked", [*OLDER, MODERN, "2024-11-05", "9999-01-01"])
async def test_a_client_that_opens_with_initialize_gets_a_session_without_anything_newer(
    client: McpClient, asked: str
) -> None:
    opened, headers = await raw(client, initialize(asked))
    given = asked if asked in OLDER else OLDER[0]
    result = opened.message["result"]
    assert result["protocolVersion"] == given
    assert "resultType" not in result and "_meta" not in result
    assert "tasks" not in result["capabilities"]
    assert TASKS not in result["capabilities"].get("extensions", {})
    session = {"Mcp-Session-Id": headers["Mcp-Session-Id"], "MCP-Protocol-Version": given}
    initialized, _ = await raw(client, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **session)
    assert (initialized.status, initialized.message) == (202, {})
    listed, _ = await raw(client, request("tools/list"), **session)
    assert listed.message["result"].keys() <= {"tools", "nextCursor"}
    called, _ = await raw(client, request("tools/call", {"name": "echo_task", "arguments": {"x": 1}}), **session)
    assert called.message["result"]["structuredContent"] == {"x": 1}
    assert called.message["result"].keys() <= {"content", "structuredContent", "isError"}


@pytest.mark.parametrize("tool", ["handle_only", "ask", "quick"])
async def test_no_older_client_is_given_a_task_whatever_it_declares(client: McpClient, tool: str) -> None:
    _, headers = await raw(client, initialize(OLDER[0], HANDLES))
    session = {"Mcp-Session-Id": headers["Mcp-Session-Id"], "MCP-Protocol-Version": OLDER[0]}
    arguments = {"seconds": 0} if tool == "handle_only" else {}
    called, _ = await raw(client, request("tools/call", {"name": tool, "arguments": arguments}), **session)
    result = called.message["result"]
    assert "taskId" not in result and "resultType" not in result
    assert bool(result.get("isError")) == (tool != "quick")  # one needs a handle, one a client that can be asked


async def test_an_older_client_may_call_without_a_session_but_cannot_be_asked(client: McpClient) -> None:
    version = {"MCP-Protocol-Version": OLDER[0]}
    called, _ = await raw(client, request("tools/call", {"name": "echo_task", "arguments": {"x": 1}}), **version)
    assert called.message["result"]["structuredContent"] == {"x": 1}
    called, _ = await raw(client, request("tools/call", {"name": "ask", "arguments": {}}), **version)
    assert called.message["result"]["isError"] is True
    assert "elicitation" in called.message["result"]["content"][0]["text"]


@pytest.mark.parametrize("method", ["server/discover", "tools/list", "ping", "nope"])
async def test_a_request_without_any_version_is_told_which_there_are(client: McpClient, method: str) -> None:
    reply, _ = await raw(client, request(method))
    assert (reply.status, reply.code) == (400, -32602)
    assert reply.message["error"]["data"]["supported"] == [MODERN, *OLDER]


# CC-02

ACCEPTS: Final[list[tuple[str | None, str | None]]] = [
    ("application/json, text/event-stream", "application/json"),
    ("text/event-stream, application/json", "application/json"),
    ("application/json", "application/json"),
    ("text/event-stream", "text/event-stream"),
    ("*/*", "application/json"),
    (None, "application/json"),
    ("application/*", "application/json"),
    ("text/*", "text/event-stream"),
    ("application/json;q=0, text/event-stream", "text/event-stream"),
    ("APPLICATION/JSON, Text/Event-Stream", "application/json"),
    ("application/json; charset=utf-8, text/event-stream; q=0.5", "application/json"),
    ("text/html, application/xhtml+xml, */*;q=0.8", "application/json"),
    ("text/html", None),
    ("application/json;q=0", None),
]


@pytest.mark.parametrize(("accepts", "served"), ACCEPTS)
@pytest.mark.parametrize("method", ["server/discover", "tools/call"])
async def test_whatever_allows_a_usable_type_is_served_in_an_allowed_one(
    client: McpClient, method: str, accepts: str | None, served: str | None
) -> None:
    label = unique("accept")
    params = {"name": "slow", "arguments": {"seconds": 0, "label": label}} if method == "tools/call" else {}
    headers = client.headers(method, params)
    del headers["Accept"]
    headers |= {} if accepts is None else {"Accept": accepts}
    async with (
        aiohttp.ClientSession(skip_auto_headers=["Accept"]) as session,
        session.post(client.url, json=client.body(method, params, capabilities={}), headers=headers) as response,
    ):
        text = await response.text()
    if served is None:
        assert response.status == 406
        assert json.loads(text)["error"]["code"] == -32600
    else:
        assert (response.status, response.content_type) == (200, served)
        message = json.loads(text.partition("data: ")[2] if served == "text/event-stream" else text)
        assert message["result"]["resultType"] == "complete"
    assert await client.count(label) == (1 if served and method == "tools/call" else 0)


# CC-03


@counts("busy,busy_seconds,calls,within", cut=(12, 2, 15, 60), full=(100, 60, 50, 600))
async def test_a_handle_comes_fast_while_the_worker_is_busy_and_then_stopped(
    stack: Stack, busy: int, busy_seconds: int, calls: int, within: float
) -> None:
    programs = Programs(environment={**stack.environment, "MCP_TASKS_TASK_QUEUE": unique("busy")})
    try:
        worker, bridge = await programs.worker(), await programs.bridge()
        async with McpClient(bridge.url) as client:
            label = unique("busy")
            occupied = [await client.start("stubborn", {"seconds": busy_seconds, "label": label}) for _ in range(busy)]

            async def working() -> bool:
                return programs.side_effects(label) > 0

            await eventually(working, what="the work that keeps the worker busy")
            worker.pause()
            replies = await asyncio.gather(*(timed(client.call("slow", {"seconds": 1})) for _ in range(calls)))
            assert all(reply.result["resultType"] == "task" for reply, _ in replies)
            assert max(took for _, took in replies) < PROMPT_SECONDS
            worker.resume()
            ids = [*occupied, *(reply.result["taskId"] for reply, _ in replies)]
            tasks = await all_finished(client, ids, within=within)
            assert {task["status"] for task in tasks.values()} == {"completed"}
    finally:
        await programs.close()


# CC-05


async def test_on_one_connection_each_request_is_served_by_what_it_declares(client: McpClient) -> None:
    opened = 0

    async def count(*_: object) -> None:
        nonlocal opened
        opened += 1

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=1), trace_configs=[trace], timeout=aiohttp.ClientTimeout(total=60)
    ) as session:

        async def send(method: str, params: dict[str, Any], capabilities: Mapping[str, Any], name: str) -> Reply:
            meta = {"io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"}}
            body = client.body(method, params, capabilities=capabilities, meta=meta)
            async with session.post(client.url, json=body, headers=client.headers(method, params)) as response:
                return Reply(response.status, await response.json(), [])

        def call(capabilities: Mapping[str, Any], name: str = "a") -> Any:
            return send("tools/call", {"name": "slow", "arguments": {"seconds": 0}}, capabilities, name)

        for name in ("a", "b", "a"):
            created = (await call(FULL, name)).result
            assert created["resultType"] == "task"
            assert (await call({}, name)).result["resultType"] == "complete"
            assert (await send("tasks/get", {"taskId": created["taskId"]}, {}, name)).code == -32021
            got = await send("tasks/get", {"taskId": created["taskId"]}, FULL, "another")
            assert got.result["taskId"] == created["taskId"]
            asked = {"name": "ask", "arguments": {}}
            assert (await send("tools/call", asked, HANDLES, name)).code == -32021
            assert (await send("tools/call", asked, FORMS, name)).result["resultType"] == "input_required"
        turns = [FULL, {}] * 5
        replies = await asyncio.gather(*map(call, turns))
        assert [reply.result["resultType"] for reply in replies] == ["task", "complete"] * 5
    assert opened == 1


async def test_an_older_session_and_a_request_of_its_own_words_do_not_mix(client: McpClient) -> None:
    _, headers = await raw(client, initialize(OLDER[0], FORMS))
    session = {"Mcp-Session-Id": headers["Mcp-Session-Id"]}
    for _ in range(2):
        modern = await client.call("ask", {}, capabilities={}, headers=session)
        assert modern.code == -32021  # what the session declared is nothing to this request
        created = await client.call("echo_task", {"x": 1}, headers=session)
        assert created.result["resultType"] == "task"
        older, _ = await raw(client, request("tools/call", {"name": "echo_task", "arguments": {"x": 1}}), **session)
        assert older.message["result"]["structuredContent"] == {"x": 1}
        assert "resultType" not in older.message["result"]


# CC-06

MISMATCH: Final = (400, -32020)
UNSERVED: Final = (400, -32022)
INCOMPLETE: Final = (400, -32602)
VERSIONS: Final[list[tuple[str | None, Any, tuple[int, int]]]] = [
    (MODERN, "2025-11-25", MISMATCH),
    ("2025-11-25", MODERN, MISMATCH),
    (None, MODERN, MISMATCH),
    (None, "2025-11-25", MISMATCH),
    ("", MODERN, MISMATCH),
    ("1900-01-01", MODERN, MISMATCH),
    ("2026-07-28, 2026-07-28", MODERN, MISMATCH),
    (MODERN, f"{MODERN} ", MISMATCH),
    ("2025-11-25", "2025-11-25", UNSERVED),
    ("2025-06-18", "2025-06-18", UNSERVED),
    ("2025-03-26", "2025-03-26", UNSERVED),
    ("1900-01-01", "1900-01-01", UNSERVED),
    ("9999-12-31", "9999-12-31", UNSERVED),
    ("latest", "latest", UNSERVED),
    (MODERN, ..., INCOMPLETE),
    (MODERN, None, MISMATCH),
    (MODERN, 20260728, MISMATCH),
    (MODERN, [MODERN], MISMATCH),
]


@pytest.mark.parametrize(("header", "meta", "refusal"), VERSIONS)
@pytest.mark.parametrize("with_session", [False, True], ids=["alone", "in a session"])
async def test_a_version_that_is_told_two_ways_or_is_not_served_starts_nothing(
    client: McpClient, header: str | None, meta: Any, refusal: tuple[int, int], with_session: bool
) -> None:
    label = unique("versions")
    params = {"name": "slow", "arguments": {"seconds": 0, "label": label}}
    body, headers = client.body("tools/call", params), client.headers("tools/call", params)
    if meta is ...:
        del body["params"]["_meta"][VERSION_KEY]
    else:
        body["params"]["_meta"][VERSION_KEY] = meta
    del headers["MCP-Protocol-Version"]
    headers |= {} if header is None else {"MCP-Protocol-Version": header}
    if with_session:
        _, opened = await raw(client, initialize(OLDER[0]))
        headers |= {"Mcp-Session-Id": opened["Mcp-Session-Id"]}
    reply = await client.post(body, headers)
    assert (reply.status, reply.code) == refusal
    if refusal == UNSERVED:
        data = reply.message["error"]["data"]
        assert data == {"supported": [v for v in (MODERN, *OLDER) if v != meta], "requested": meta}
    assert await client.count(label) == 0


@pytest.mark.parametrize("version", ["2025-03-26", "1900-01-01"])
async def test_a_session_cannot_be_used_in_a_revision_that_is_not_served(client: McpClient, version: str) -> None:
    _, opened = await raw(client, initialize(OLDER[0]))
    session = {"Mcp-Session-Id": opened["Mcp-Session-Id"], "MCP-Protocol-Version": version}
    reply, _ = await raw(client, request("tools/list"), **session)
    assert (reply.status, reply.code) == UNSERVED
    assert reply.message["error"]["data"] == {"supported": [MODERN, *OLDER], "requested": version}


async def test_a_session_with_the_header_of_the_new_revision_alone_is_incomplete(client: McpClient) -> None:
    _, opened = await raw(client, initialize(OLDER[0]))
    session = {"Mcp-Session-Id": opened["Mcp-Session-Id"], "MCP-Protocol-Version": MODERN}
    reply, _ = await raw(client, request("tools/list"), **session)
    assert (reply.status, reply.code) == INCOMPLETE


# PE-10, for calls


def call_headers() -> list[tuple[dict[str, Any], bool]]:
    """Headers of a call of `tööl`, and whether they agree with it."""
    name = "tööl"
    encoded = base64.b64encode(name.encode()).decode()
    return [
        ({"Mcp-Name": sentinel(name)}, True),
        ({"mCp-NaMe": sentinel(name)}, True),
        ({"Mcp-Name": f"  {sentinel(name)} \t"}, True),
        ({"Mcp-Name": name}, False),
        ({"Mcp-Name": f"=?BASE64?{encoded}?="}, False),
        ({"Mcp-Name": "=?base64?%%%?="}, False),
        ({"Mcp-Name": f"=?base64?{base64.b64encode(bytes([255, 254])).decode()}?="}, False),
        ({"Mcp-Name": f"=?base64?{base64.b64encode(name.encode('latin-1')).decode()}?="}, False),
        ({"Mcp-Name": encoded}, False),
        ({"Mcp-Name": sentinel("TÖÖL")}, False),
        ({"Mcp-Name": "echo"}, False),
        ({"Mcp-Name": ""}, False),
        ({"Mcp-Name": None}, False),
        ({"Mcp-Method": "TOOLS/CALL"}, False),
        ({"Mcp-Method": "tasks/get"}, False),
        ({"Mcp-Method": None}, False),
    ]


@pytest.mark.parametrize(("changed", "agrees"), call_headers())
async def test_a_call_is_served_only_if_its_headers_name_method_and_tool(
    client: McpClient, changed: dict[str, Any], agrees: bool
) -> None:
    params = {"name": "tööl", "arguments": {"x": 1}}
    names = {name.lower() for name in changed}
    headers = {name: value for name, value in client.headers("tools/call", params).items() if name.lower() not in names}
    headers |= {name: value for name, value in changed.items() if value is not None}
    reply = await client.post(client.body("tools/call", params), headers)
    if agrees:
        assert (reply.status, reply.result["structuredContent"]) == (200, {"x": 1})
    else:
        assert (reply.status, reply.code) == (400, -32020)


# CR-08


async def test_resetting_the_connection_after_the_handle_cancels_nothing(client: McpClient) -> None:
    label = unique("reset")
    params = {"name": "slow", "arguments": {"seconds": 1, "label": label}}
    body = json.dumps(client.body("tools/call", params)).encode()
    where = urlsplit(client.url)
    headers = {**client.headers("tools/call", params), "Host": where.netloc, "Content-Length": str(len(body))}
    head = f"POST {where.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(head.encode() + b"\r\n" + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(answer.partition("content-length:")[2].split()[0])
    task_id = str(json.loads(await reader.readexactly(length))["result"]["taskId"])
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    assert (await client.finished(task_id))["status"] == "completed"
    assert await client.count(label) == 1
