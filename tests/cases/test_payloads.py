"""Sizes and texts (PL): what is too large is said to be, once and for all, and what is not comes back as it was."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio

from bridge.bounded import MAX_STEP_BYTES
from tests.cases.client import FORMS, FULL, McpClient, accept
from tests.cases.stack import Process
from tests.cases.values import VALUE, same
from tests.support import eventually, unique
from workflows.kit.contract import MAX_MESSAGE_CHARS, MAX_PAYLOAD_BYTES

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIMIT: Final = str(MAX_PAYLOAD_BYTES)
MB: Final = 1_000_000

TEXT: Final = (
    "a\u2028b\u2029c\u0085d\u000be\u000cf\u001cg\r\nh\u0000i\ufeffj\t\u007f"
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u00e9 e\u0301 \u200f\u05d0 \uffff \\ \" ' </script> =?base64?x?="
)
FORGED: Final = '\n\ndata: {"jsonrpc":"2.0","id":1,"result":{"forged":true}}\n\n'


@pytest_asyncio.fixture(loop_scope="session")
async def large(bridge: Process) -> AsyncIterator[McpClient]:
    """A client of its own, so that each request also tests in what state the one before it left the connection."""
    async with McpClient(bridge.url) as client:
        yield client


def assert_names_the_limit(task: dict[str, Any]) -> None:
    """The task ended, and says how large something may be."""
    if task["status"] == "failed":
        assert LIMIT in task["error"]["message"]
    else:
        assert task["result"]["isError"] is True and LIMIT in task["result"]["content"][0]["text"]


# Results

RESULTS: Final[list[tuple[str, int, int]]] = [
    # mode, characters, bytes of JSON that they take at least
    ("text", 100_000, 100_000),
    ("text", 1_890_000, 1_890_000),
    ("text", 1_990_000, 1_990_000),
    ("text", 2_100_000, 2_100_000),
    ("text", 3_900_000, 3_900_000),
    ("text", 4_200_000, 4_200_000),
    ("text", 10_000_000, 10_000_000),
    ("wide", 600_000, 1_800_000),
    ("wide", 1_500_000, 4_500_000),
    ("image", 1_500_000, 1_500_000),
    ("image", 2_100_000, 2_100_000),
    ("structured", 900_000, 1_800_000),
    ("structured", 1_500_000, 3_000_000),
    ("error_result", 1_500_000, 1_500_000),
    ("error_result", 2_100_000, 2_100_000),
    ("error_result", 10_000_000, 10_000_000),
    ("activity", 1_500_000, 1_500_000),
    ("activity", 2_100_000, 2_100_000),
    ("activity", 4_200_000, 4_200_000),
]


@pytest.mark.parametrize("mode", ["text", "wide", "image", "structured", "error_result", "activity"])
async def test_a_result_comes_back_whole_or_names_the_limit(client: McpClient, mode: str) -> None:
    sizes = [(n, size) for name, n, size in RESULTS if name == mode]
    ids = [await client.start("emit_size", {"n": n, "mode": mode}) for n, _ in sizes]
    for (n, size), task_id in zip(sizes, ids, strict=True):
        task = await client.finished(task_id)
        result = task.get("result", {})
        if size <= MAX_PAYLOAD_BYTES:
            assert task["status"] == "completed" and result.get("isError", False) == (mode == "error_result")
            value = ("\u4e16" if mode == "wide" else "x") * n
            (block,) = result["content"]
            assert block == {
                "image": {"type": "image", "data": value, "mimeType": "image/png"},
                "structured": {"type": "text", "text": json.dumps({"value": value})},
            }.get(mode, {"type": "text", "text": value})
            assert result.get("structuredContent") == ({"value": value} if mode == "structured" else None)
        elif mode != "activity":
            assert_names_the_limit(task)
        else:
            assert result["isError"] is True and str(MAX_STEP_BYTES) in result["content"][0]["text"]
    await client.alive()


@pytest.mark.parametrize("n", [1_890_000, 2_100_000, 10_000_000])
async def test_a_waiting_caller_gets_a_large_result_or_the_limit(client: McpClient, n: int) -> None:
    result = (await client.call("emit_size", {"n": n}, capabilities={})).result
    assert result["content"][0]["text"] == "x" * n if n < MAX_PAYLOAD_BYTES else LIMIT in json.dumps(result)


@pytest.mark.parametrize("data_bytes", [1_000_000, 2_100_000, 4_200_000])
async def test_the_data_of_an_error_comes_back_whole_or_names_the_limit(client: McpClient, data_bytes: int) -> None:
    arguments = {"kind": "rpc", "code": 4711, "message": "m", "data_bytes": data_bytes}
    task = await client.finished(await client.start("boom", arguments))
    if data_bytes < MAX_PAYLOAD_BYTES:
        assert task["error"] == {"code": 4711, "message": "m", "data": "x" * data_bytes}
    else:
        assert_names_the_limit(task)


@pytest.mark.parametrize("size", [1_900_000, 2_150_000, 5_000_000])
async def test_a_step_whose_input_is_too_large_ends_the_task(client: McpClient, size: int) -> None:
    task = await client.finished(await client.start("boom", {"kind": "argument", "message_bytes": size}))
    if size < 2_000_000:
        assert task["result"]["isError"] is True and task["result"]["content"][0]["text"].startswith("boomxxx")
    else:
        assert (task["status"], task["error"]["code"]) == ("failed", -32603)
        assert task["error"]["message"] == "The task was terminated: a step or its history exceeded a size limit"
    await client.alive()


# What is shown meanwhile


@pytest.mark.parametrize("n", [60_000, 70_000, 1_500_000, 2_100_000, 4_200_000])
async def test_a_large_question_is_asked_whole_or_the_limit_is_named(client: McpClient, n: int) -> None:
    task_id = await client.start("emit_size", {"n": n, "mode": "question"})

    async def shown() -> dict[str, Any] | None:
        task = (await client.get(task_id)).result
        return task if task["status"] != "working" else None

    task = await eventually(shown, what="a question or an end")
    if task["status"] != "input_required":
        assert n > MAX_PAYLOAD_BYTES
        assert_names_the_limit(task)
        return
    ((key, request),) = task["inputRequests"].items()
    assert request["params"]["message"] == "x" * n
    assert (await client.update(task_id, {key: accept(text="yes")})).code is None
    assert (await client.finished(task_id))["result"]["structuredContent"] == {"text": "yes"}


@pytest.mark.parametrize("n", [500, 2_100_000])
async def test_a_large_status_is_cut_and_says_so(client: McpClient, n: int) -> None:
    task_id = await client.start("emit_size", {"n": n, "mode": "status"})

    async def shown() -> str | None:
        task = (await client.get(task_id)).result
        assert task["status"] in {"working", "completed"}
        message = str(task.get("statusMessage", ""))
        return message if message.startswith("x") or task["status"] == "completed" else None

    message = await eventually(shown, what="a status message")
    assert message in ("x" * n, "") or (len(message) < 10_000 and str(n) in message)
    assert (await client.finished(task_id))["status"] == "completed"


# Arguments and answers


async def send(client: McpClient, method: str, params: dict[str, Any], *, chunked: bool) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the message that answer a request whose body is sent whole or in chunks."""
    body = json.dumps(client.body(method, params)).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    async with aiohttp.ClientSession() as session:
        data: Any = pieces() if chunked else io.BytesIO(body)
        async with session.post(client.url, data=data, headers=client.headers(method, params)) as response:
            return response.status, json.loads(await response.read())


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("capabilities", [FULL, FORMS], ids=["takes a handle", "waits"])
async def test_arguments_are_taken_whole_or_the_limit_is_named(
    large: McpClient, chunked: bool, capabilities: dict[str, Any]
) -> None:
    large.capabilities = capabilities
    for size in (900_000, 1_100_000, 1_890_000, 2_100_000, 4_500_000, 20_000_000):
        params = {"name": "echo_task", "arguments": {"x": "x" * size}}
        status, message = await send(large, "tools/call", params, chunked=chunked)
        if size > MAX_PAYLOAD_BYTES:
            assert (status, message["error"]["code"]) in {(400, -32602), (413, -32600)}, size
            assert any(limit in message["error"]["message"] for limit in (LIMIT, str(4 * 1024 * 1024)))
            continue
        result = message["result"]
        if capabilities == FULL:
            assert result["resultType"] == "task"
            result = (await large.finished(result["taskId"]))["result"]
        if 2 * size < MAX_PAYLOAD_BYTES:  # the echo is in the text and in the structured content
            assert result["structuredContent"] == {"x": "x" * size}
        else:
            assert result["isError"] is True and LIMIT in result["content"][0]["text"]
    await large.alive()


async def test_answers_are_taken_whole_or_the_limit_is_named(large: McpClient) -> None:
    for size in (1_890_000, 900_000, 2_100_000, 4_500_000):
        task_id = await large.start("profile", {})
        (key,) = await large.parked(task_id)
        params = {"taskId": task_id, "inputResponses": {key: accept(name="x" * size)}}
        status, message = await send(large, "tasks/update", params, chunked=False)
        if size < MAX_PAYLOAD_BYTES:
            assert message["result"]["resultType"] == "complete"
            result = (await large.finished(task_id))["result"]
            assert result["structuredContent"]["name"] == "x" * size if size < 10**6 else LIMIT in json.dumps(result)
            continue
        assert (status, message["error"]["code"]) in {(400, -32602), (413, -32600)}
        assert (await large.parked(task_id)).keys() == {key}
        await large.update(task_id, {key: accept(name="short")})
        assert (await large.finished(task_id))["result"]["structuredContent"]["name"] == "short"


async def test_answers_that_a_call_brings_along_are_bounded_too(large: McpClient) -> None:
    for size in (1_000_000, 2_100_000):
        reply = await large.call(
            "ask_named", {"label": ""}, responses={"name": accept(text="x" * size)}, capabilities=FORMS
        )
        if size < MAX_PAYLOAD_BYTES:
            assert list(reply.result["inputRequests"]) == ["colour"]
        else:
            assert (reply.status, reply.code) == (400, -32602) and LIMIT in reply.message["error"]["message"]


async def test_many_junk_keys_are_acknowledged_however_large(large: McpClient) -> None:
    task_id = await large.start("ask", {"n": 1})
    (key,) = await large.parked(task_id)
    junk: dict[str, Any] = {f"junk-{number}": "x" * 100 for number in range(25_000)}
    assert (await large.update(task_id, junk | {key: accept(text="yes")})).result == {"resultType": "complete"}
    assert (await large.finished(task_id))["result"]["structuredContent"]["answers"] == [["Question 0", "yes"]]


# Error texts


@pytest.mark.parametrize("size", [3_000, 30_000, 5_000_000])
async def test_a_long_error_keeps_its_beginning_and_says_that_it_was_cut(client: McpClient, size: int) -> None:
    start = "Nothing found \x00 \U0001f937 "
    arguments = {"message": start, "message_bytes": size}
    kinds = ["tool", "declared", "rpc", "python", "activity", "keyerror"]
    if size <= 30_000:  # two hundred causes, each with the whole text
        kinds.append("chain")
    ids = {kind: await client.start("boom", {"kind": kind, **arguments}) for kind in kinds}
    for kind, task_id in ids.items():
        task = await client.finished(task_id)
        text = task["error"]["message"] if kind == "rpc" else task["result"]["content"][0]["text"]
        if kind in ("tool", "declared", "rpc"):
            assert text.startswith(start + "x" * 1_000), kind
            whole = start + "x" * size
            assert text == whole if len(whole) <= MAX_MESSAGE_CHARS else ("cut" in text and str(len(whole)) in text)
            assert len(text) < MAX_MESSAGE_CHARS + 100
        else:
            assert text.startswith("The tool failed because of an internal error. Reference: ")
        for inside in ("Traceback", 'File "', "site-packages", ".py"):
            assert inside not in json.dumps(task)


# Texts


async def in_status(client: McpClient, text: str) -> str:
    """`text` after a round trip through a status message."""
    task_id = await client.start("status", {"x": text})

    async def shown() -> str | None:
        return (await client.get(task_id)).result.get("statusMessage")

    try:
        return await eventually(shown, what="a status message")
    finally:
        await client.cancel(task_id)


@pytest.mark.parametrize(
    "text", [TEXT, FORGED, "", " ", "\x00", "\u2028", "\U0010ffff"], ids=lambda text: ascii(text)[:12]
)
@pytest.mark.parametrize("escaped", [True, False], ids=["escaped", "raw"])
@pytest.mark.parametrize("accepts", ["application/json", "text/event-stream"], ids=["json", "sse"])
async def test_any_text_survives_every_place(client: McpClient, text: str, escaped: bool, accepts: str) -> None:
    async def send_call(tool: str, arguments: dict[str, Any], **members: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        body = json.dumps(client.body("tools/call", params, **members), ensure_ascii=escaped).encode()
        reply = await client.post(body, client.headers("tools/call", params) | {"Accept": accepts})
        assert reply.notifications == []
        return reply.message

    keyed = {"x": {"key" + text: [text]}}
    assert same((await send_call("echo", keyed))["result"]["structuredContent"], keyed)
    emitted = await send_call("emit", {"x": text or [text]}, capabilities={})
    assert emitted["result"]["content"][0]["text"] == (text or '[""]')
    arguments = {"kind": "rpc", "code": 1, "message": text, "data": {text: text}}
    error = (await send_call("boom", arguments, capabilities={}))["error"]
    assert same(error, {"code": 1, "message": text, "data": {text: text}})


@pytest.mark.parametrize("text", [TEXT, FORGED, "nan"], ids=["any", "forged", "nan"])
async def test_any_text_survives_questions_answers_and_status(client: McpClient, text: str) -> None:
    task_id = await client.start("ask", {"n": 1, "message": text, "payload": text})
    ((key, request),) = (await client.parked(task_id)).items()
    assert request["params"]["message"] == f"{text} 0"
    await client.update(task_id, {key: accept(text=text)})
    result = (await client.finished(task_id))["result"]
    assert same(result["structuredContent"]["answers"], [[f"{text} 0", text]])
    assert result["structuredContent"]["arguments"]["payload"] == text
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert await in_status(client, text) == text


async def test_any_text_survives_as_the_label_of_a_step(client: McpClient) -> None:
    label = unique(TEXT)
    await client.finished(await client.start("slow", {"seconds": 0, "label": label}))
    assert await client.count(label) == 1


BAD_BYTES: Final = {
    "a bad byte in a string": lambda body: body.replace(b"@@", b"\xe9"),
    "a surrogate in UTF-8": lambda body: body.replace(b"@@", b"\xed\xa0\x80"),
    "an overlong slash": lambda body: body.replace(b"@@", b"\xc0\xaf"),
    "UTF-16": lambda body: body.decode().encode("utf-16"),
    "UTF-32": lambda body: body.decode().encode("utf-32"),
    "latin-1": lambda body: body.decode().replace("@@", "\xe9\xe8").encode("latin-1"),
    "nothing but bad bytes": lambda _: b"\xff\xfe\n",
}


@pytest.mark.parametrize("spoil", BAD_BYTES.values(), ids=BAD_BYTES)
async def test_bytes_that_are_not_utf_8_start_nothing(client: McpClient, spoil: Any) -> None:
    label = unique("@@")
    task_id = await client.start("ask", {"n": 1})
    (key,) = await client.parked(task_id)
    for method, params in [
        ("tools/call", {"name": "slow", "arguments": {"seconds": 0, "label": label}}),
        ("tasks/update", {"taskId": task_id, "inputResponses": {key: accept(text="@@")}}),
    ]:
        body = spoil(json.dumps(client.body(method, params)).encode())
        reply = await client.post(body, client.headers(method, params))
        assert (reply.status, reply.code) == (400, -32700)
    assert (await client.parked(task_id)).keys() == {key}
    assert await client.count(label) == 0
    await client.alive()


@pytest.mark.parametrize("escape", ["\\ud800", "\\udfff", "\\udc00\\ud800"])
async def test_lone_surrogates_start_and_answer_nothing(client: McpClient, escape: str) -> None:
    task_id = await client.start("ask", {"n": 1})
    (key,) = await client.parked(task_id)
    places: list[tuple[str, dict[str, Any]]] = [
        ("tools/call", {"name": "echo", "arguments": {"x": "@@"}}),
        ("tools/call", {"name": "echo", "arguments": {"@@": 1}}),
        ("tasks/update", {"taskId": task_id, "inputResponses": {key: accept(text="@@")}}),
        ("tasks/update", {"taskId": task_id, "inputResponses": {"@@": accept(text="x")}}),
    ]
    for method, params in places:
        body = json.dumps(client.body(method, params)).replace("@@", escape).encode()
        reply = await client.post(body, client.headers(method, params))
        assert (reply.status, reply.code) == (400, -32600)
    assert (await client.parked(task_id)).keys() == {key}


# Numbers and nulls


async def test_numbers_that_json_lacks_are_never_sent(client: McpClient) -> None:
    task = await client.finished(await client.start("not_finite", {}))
    assert task["result"]["structuredContent"] == {"nan": None, "inf": [None, None]}
    waited = (await client.call("not_finite", {}, capabilities={})).result
    assert waited["structuredContent"] == {"nan": None, "inf": [None, None]}
    text = json.loads(task["result"]["content"][0]["text"], parse_constant=pytest.fail)
    assert text == task["result"]["structuredContent"]


@pytest.mark.parametrize("tool", ["echo", "echo_task", "emit"])
async def test_nulls_and_numbers_keep_their_meaning_through_the_engine(client: McpClient, tool: str) -> None:
    called = (await client.call(tool, {"x": VALUE})).result
    result = called if tool == "echo" else (await client.finished(called["taskId"]))["result"]
    structured = result["structuredContent"]
    assert same(structured if tool == "emit" else structured["x"], VALUE)
    assert same(json.loads(result["content"][0]["text"]), structured)
    assert result.keys() == {"content", "structuredContent", "resultType"}
    assert [block.keys() for block in result["content"]] == [{"type", "text"}]


async def test_numbers_in_errors_and_answers_keep_their_meaning(client: McpClient) -> None:
    task = await client.finished(await client.start("boom", {"kind": "rpc", "code": 1, "data": VALUE}))
    assert same(task["error"]["data"], VALUE)
    for age in (9007199254740993, 12345678901234567890123, 0):
        task_id = await client.start("profile", {})
        (key,) = await client.parked(task_id)
        assert (await client.update(task_id, {key: accept(name="x", age=age)})).code is None
        assert (await client.finished(task_id))["result"]["structuredContent"]["age"] == age


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "t", "annotations": {"priority": 1.0}, "_meta": {"x.example/y": 1}}],
        [{"type": "resource_link", "uri": "file:///x", "name": "x"}, {"type": "text", "text": ""}],
        [{"type": "audio", "data": "eA==", "mimeType": "audio/wav"}],
        [{"type": "resource", "resource": {"uri": "file:///x", "text": "t"}}],
        [],
    ],
    ids=["annotated", "link", "audio", "resource", "empty"],
)
async def test_a_result_in_the_form_of_the_protocol_is_the_result_as_it_is(client: McpClient, content: Any) -> None:
    result = {"content": content, "structuredContent": {"n": None}, "_meta": {"x.example/z": 1}}
    expected = {**result, "resultType": "complete"}
    assert same((await client.finished(await client.start("emit", {"x": result})))["result"], expected)
    waited = (await client.call("emit", {"x": result}, capabilities={})).message["result"]
    waited["_meta"].pop("io.modelcontextprotocol/serverInfo")
    assert same(waited, expected)


@pytest.mark.parametrize(
    "value",
    [0, False, 1.5, [], [1, None], {}, {"content": "no list"}, {"content": [5]}, {"content": [{"type": "x"}]}, ""],
    ids=str,
)
async def test_any_other_value_becomes_structured_content_and_text(client: McpClient, value: Any) -> None:
    replies = await asyncio.gather(
        client.call("emit", {"x": value}), client.call("emit", {"x": value}, capabilities={})
    )
    results = [(await client.finished(replies[0].result["taskId"]))["result"], replies[1].result]
    assert same(results[0], results[1])
    if isinstance(value, str):
        assert results[0] == {"content": [{"type": "text", "text": value}], "resultType": "complete"}
    else:
        assert same(results[0]["structuredContent"], value)
        assert same(json.loads(results[0]["content"][0]["text"]), value)
