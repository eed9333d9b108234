"""What a line may be, and what comes back for one that may not."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import pytest

from tests.cases.client import accept
from tests.cases.stack import Stack
from tests.stdio.client import (
    StdioClient,
    call,
    line_of,
    meta,
    notification,
    request,
    stdio_client,
)
from tests.support import unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIMIT: Final = 4 * 1024 * 1024


def raw(arguments: str, **members: str) -> bytes:
    """A call of `echo` as its sender spells it."""
    members = {"jsonrpc": '"2.0"', "id": "1", "method": '"tools/call"', **members}
    params = f'{{"name":"echo","arguments":{arguments},"_meta":{json.dumps(meta())}}}'
    body = ",".join(f'"{name}":{value}' for name, value in members.items())
    return f'{{{body},"params":{params}}}\n'.encode()


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


BIG: Final = "1" * 5000

BAD_LINES: Final[list[tuple[str, bytes, int, int | None]]] = [
    ("not JSON", b"hello\n", -32700, None),
    ("half a message", b'{"jsonrpc":"2.0",\n', -32700, None),
    ("bytes that are not UTF-8", b"\xff\xfe\n", -32700, None),
    ("Latin-1", raw('{"x":"caf\u00e9"}').decode().encode("latin-1"), -32700, None),
    ("NUL", b"\0\n", -32700, None),
    ("NaN", raw('{"x":NaN}'), -32700, None),
    ("a number that no double holds", raw('{"x":1e400}'), -32700, None),
    ("a long integer", raw(f'{{"x":{BIG}}}'), -32700, None),
    ("a long integer as id", raw('{"x":1}', id=BIG), -32700, None),
    ("an empty batch", b"[]\n", -32600, None),
    ("a batch", b"[" + raw('{"x":1}').strip() + b"]\n", -32600, None),
    ("a batch of notifications", b'  [{"jsonrpc":"2.0","method":"notifications/cancelled"}]\n', -32600, None),
    ("a string", b'"hello"\n', -32600, None),
    ("null", b"null\n", -32600, None),
    ("nested too deep", raw(nested(150)), -32600, 1),
    ("nested much too deep", raw(nested(100_000)), -32700, None),
    ("a lone surrogate", raw('{"x":"\\ud800"}'), -32600, 1),
    ("no version of JSON-RPC", raw('{"x":1}', jsonrpc='"1.0"'), -32600, 1),
    ("id null", raw('{"x":1}', id="null"), -32600, None),
    ("id true", raw('{"x":1}', id="true"), -32600, None),
    ("id 1.5", raw('{"x":1}', id="1.5"), -32600, None),
    ("id object", raw('{"x":1}', id="{}"), -32600, None),
    ("id array", raw('{"x":1}', id="[1]"), -32600, None),
    ("a method that is no string", raw('{"x":1}', method="7"), -32600, 1),
    ("params that are no object", b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}\n', -32602, 1),
    ("a request without id", raw('{"x":1}').replace(b'"id":1,', b""), -32600, None),
    ("a response", b'{"jsonrpc":"2.0","id":1,"result":{}}\n', -32600, None),
    ("an error", b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}\n', -32600, None),
    ("a line above the limit", raw(json.dumps({"x": "x" * LIMIT})), -32600, None),
]


@pytest.mark.parametrize(
    ("line", "code", "request_id"), [case[1:] for case in BAD_LINES], ids=[b[0] for b in BAD_LINES]
)
async def test_a_bad_line_costs_one_error_and_the_stream_stays_in_step(
    shared: StdioClient, line: bytes, code: int, request_id: int | None
) -> None:
    await shared.send(line, line)
    await shared.alive()
    errors = [message for message in shared.messages if "error" in message]
    assert [(error["error"]["code"], error.get("id")) for error in errors] == [(code, request_id)] * 2
    assert len(shared.messages) == 3


async def test_a_call_that_was_refused_has_started_nothing(stack: Stack, shared: StdioClient) -> None:
    label = unique("refused")
    one = json.dumps(call("slow", {"seconds": 0.1, "label": label}))
    for spelt in (f"[{one},{one}]", one.replace('"id": ', '"id": 1.5, "was": '), one[:-1], one.replace("id", "di", 1)):
        await shared.send(spelt.encode() + b"\n")
    await shared.unaddressed(4)
    assert (await shared.result(call("count", {"label": label})))["structuredContent"] == {"count": 0}
    assert stack.side_effects(label) == 0


async def test_line_ends_blank_lines_and_a_mark_are_tolerated(server: StdioClient) -> None:
    one, two, three = (line_of(request("server/discover", id=number)) for number in (1, 2, 3))
    await server.send(b"\n  \n\r\n", one.replace(b"\n", b"\r\n"), b"\n", b"\xef\xbb\xbf" + two, three.rstrip(b"\n"))
    server.end_input()
    assert await server.status() == 0
    assert sorted(message["id"] for message in server.messages if "result" in message) == [1, 2, 3]
    assert len(server.messages) == 3


ODD_TEXT: Final = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\r\nh\x00i\ufeffj\U0001f468\u200d\U0001f469\u00e9e\u0301\u200f"


@pytest.mark.parametrize("ascii_only", [True, False])
async def test_any_text_comes_back_as_it_was_sent(shared: StdioClient, ascii_only: bool) -> None:
    value = {ODD_TEXT: ODD_TEXT, "forged": '\n{"jsonrpc":"2.0","id":1,"result":{}}\n'}
    message = call("echo", {"x": value}, id=ODD_TEXT)
    await shared.send(json.dumps(message, ensure_ascii=ascii_only).encode() + b"\n")
    response = await shared.response(ODD_TEXT)
    assert response["result"]["structuredContent"] == {"x": value}
    assert len(shared.messages) == 1


IDS: Final = [
    *(1, "1", 0, -1, "007", " 7 ", 7, "7", "1_000", "\u0667", ""),
    *(9007199254740993, "9007199254740993", "x" * 4096),
]


async def test_ids_come_back_as_they_were_sent(shared: StdioClient) -> None:
    await shared.send(*(request("server/discover", id=request_id) for request_id in IDS))
    for request_id in IDS:
        await shared.response(request_id)
    assert len(shared.messages) == len(IDS)


async def test_a_long_line_that_comes_in_pieces_is_one_message(shared: StdioClient) -> None:
    for total in (60_000, 65_535, 65_536, 65_537, 900_000):
        message = call("echo", {"x": ""})
        message["params"]["arguments"]["x"] = "x" * (total - len(line_of(message)))
        line = line_of(message)
        assert len(line) == total
        for start in range(0, total, 4096):
            await shared.send(line[start : start + 4096])
            await asyncio.sleep(0)
        response = await shared.response(message["id"])
        assert response["result"]["structuredContent"]["x"] == message["params"]["arguments"]["x"]


@pytest.mark.parametrize(("length", "served"), [(LIMIT, True), (LIMIT + 1, False), (2 * LIMIT, False)])
async def test_the_limit_of_a_line_is_exact_and_named(shared: StdioClient, length: int, served: bool) -> None:
    message = request("server/discover")
    message["params"]["x"] = ""
    message["params"]["x"] = "x" * (length - len(line_of(message)) + 1)
    line = line_of(message)
    assert len(line) == length + 1  # the newline does not count
    for start in range(0, len(line), 256 * 1024):
        await shared.send(line[start : start + 256 * 1024])
    if served:
        assert "result" in await shared.response(message["id"])
    else:
        (error,) = await shared.unaddressed(1)
        assert error["error"] == {"code": -32600, "message": f"The line exceeds the limit of {LIMIT} bytes"}
    await shared.alive()
    assert len(shared.messages) == 2


async def test_an_answer_that_nests_too_deep_leaves_its_question_open(shared: StdioClient) -> None:
    task_id = await shared.start("ask", {"n": 1})
    (key,) = await shared.parked(task_id)
    answers = f'{{"taskId":"{task_id}","inputResponses":{{"{key}":{{"action":"accept","content":{nested(150)}}}}}}}'
    line = f'{{"jsonrpc":"2.0","id":1,"method":"tasks/update","params":{answers}}}'
    await shared.send(line.encode() + b"\n")
    assert (await shared.response(1))["error"]["code"] == -32600
    assert await shared.parked(task_id) == [key]
    await shared.result(request("tasks/update", {"taskId": task_id, "inputResponses": {key: accept(text="y")}}))
    assert (await shared.finished(task_id))["result"]["structuredContent"]["answers"] == [["Question 0", "y"]]


async def test_arguments_that_the_engine_could_not_hold_are_refused_with_the_limit(shared: StdioClient) -> None:
    taken = await shared.result(call("echo", {"x": "x" * 900_000}))
    assert len(taken["structuredContent"]["x"]) == 900_000
    response = await shared.ask(call("echo_task", {"x": "x" * 2_100_000}))
    assert response["error"]["code"] == -32602
    assert response["error"]["data"] == {"maxBytes": 1_900_000}


async def test_a_setting_moves_the_limit(stack: Stack) -> None:
    async with stdio_client(stack.environment, MCP_TASKS_MAX_BODY_BYTES="1024") as server:
        await server.send(b"x" * 1025 + b"\n")
        (error,) = await server.unaddressed(1)
        assert error["error"]["message"] == "The line exceeds the limit of 1024 bytes"


IGNORED: Final[list[Any]] = [None, True, 1.0, {}, [1], 99, "x"]


async def test_unknown_notifications_and_malformed_cancels_are_ignored(shared: StdioClient) -> None:
    await shared.send(
        notification("notifications/initialized"),
        notification("notifications/roots/list_changed"),
        notification("nonsense"),
        notification("notifications/cancelled"),
        *(notification("notifications/cancelled", requestId=value) for value in IGNORED),
    )
    await shared.alive()
    assert len(shared.messages) == 1
