"""The listen halves of PL-01, PL-05 and PL-09: sizes, texts and numbers, as notifications carry them over HTTP and over
stdio.

What is told is what tasks/get answers, to the byte; and a stream stays in step whatever a value holds. Over stdio the
client of these tests takes a line for one message, in ASCII: `tests.stdio.client.parsed` fails on anything else.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from bridge.bounded import MAX_STEP_BYTES
from tests.cases.client import McpClient, accept
from tests.cases.listening import SUBSCRIPTION
from tests.cases.subscribers import HttpSubscriber, both, http_subscriber, pipe_subscriber
from tests.cases.values import VALUE, same
from tests.stdio.client import StdioClient, cancelled
from tests.support import eventually
from workflows.kit.contract import MAX_PAYLOAD_BYTES

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEXT: Final = (
    "a\u2028b\u2029c\u0085d\u000be\u000cf\u001cg\r\nh\u0000i\ufeffj\t\u007f"
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u00e9 e\u0301 \u200f\u05d0 \\ \" '"
)
FORGED: Final = '\n\nevent: message\ndata: {"jsonrpc":"2.0","id":1,"result":{"forged":true}}\n\n'


# PL-01

SIZES: Final[list[tuple[str, int, int]]] = [
    # mode, characters, bytes of JSON that they take at least
    ("text", 100_000, 100_000),
    ("text", 1_890_000, 1_890_000),
    ("text", 2_100_000, 2_100_000),
    ("text", 3_900_000, 3_900_000),
    ("text", 4_200_000, 4_200_000),
    ("text", 10_000_000, 10_000_000),
    ("wide", 500_000, 1_500_000),
    ("image", 1_500_000, 1_500_000),
    ("structured", 900_000, 1_800_000),
    ("structured", 1_500_000, 3_000_000),
    ("activity", 2_100_000, 2_100_000),
]


async def test_a_result_of_any_size_is_told_whole_or_names_the_limit(client: McpClient, pipe: StdioClient) -> None:
    ids = [await client.start("emit_size", {"n": n, "mode": mode}) for mode, n, _ in SIZES]
    async with both(client, pipe, ids) as streams:
        for (mode, n, size), task_id in zip(SIZES, ids, strict=True):
            got = await client.finished(task_id)
            for stream in streams:
                assert await stream.ended(task_id) == got
            assert "working" not in got["status"]
            if size <= MAX_PAYLOAD_BYTES:
                (block,) = got["result"]["content"]
                value = ("\u4e16" if mode == "wide" else "x") * n
                assert value == (json.loads(block["text"])["value"] if mode == "structured" else _body(block))
            else:
                limit = MAX_STEP_BYTES if mode == "activity" else MAX_PAYLOAD_BYTES
                assert got["status"] == "failed" or got["result"]["isError"] is True
                assert str(limit) in json.dumps(got)
        await client.alive()
        await pipe.alive()


def _body(block: dict[str, Any]) -> str:
    return str(block["data"] if block["type"] == "image" else block["text"])


@pytest.mark.parametrize("n", [60_000, 70_000, 1_500_000])
async def test_a_large_question_is_told_whole(client: McpClient, pipe: StdioClient, n: int) -> None:
    """Above 65,536 bytes the workflow publishes no snapshot of it: the question is read anew."""
    task_id = await client.start("emit_size", {"n": n, "mode": "question"})
    async with both(client, pipe, [task_id]) as streams:
        (key,) = await client.parked(task_id)
        for stream in streams:
            told = await stream.told(task_id, "input_required")
            assert told["inputRequests"][key]["params"]["message"] == "x" * n
            assert told == (await client.get(task_id)).result
        await client.update(task_id, {key: accept(text="yes")})
        for stream in streams:
            assert (await stream.ended(task_id))["result"]["structuredContent"] == {"text": "yes"}


# PL-05


def naively(stream: HttpSubscriber) -> list[dict[str, Any]]:
    """The messages as a client finds them that cuts at whatever Python takes for a line end."""
    lines = stream.raw.decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


@pytest.mark.parametrize("text", [TEXT, FORGED], ids=["any", "forged"])
async def test_any_text_is_told_in_every_place_and_cannot_break_a_stream(
    client: McpClient, pipe: StdioClient, text: str
) -> None:
    """In a result and an object's key, an error and its status message, a question and its answer, a status message of
    a working task, and the id of the subscription.
    """
    keyed = {"key" + text: [text, {text: text}]}
    emitted = await client.start("emit", {"x": keyed})
    failed = await client.start("boom", {"kind": "rpc", "code": 1, "message": text, "data": {text: text}})
    asked = await client.start("ask", {"n": 1, "message": text, "payload": text})
    (key,) = await client.parked(asked)
    ids = [emitted, failed, asked]
    async with http_subscriber(client, ids, id=text) as over_http:
        over_stdio = await pipe_subscriber(pipe, ids, id=text)
        for stream in (over_http, over_stdio):
            assert same((await stream.ended(emitted))["result"]["structuredContent"], keyed)
            task = await stream.ended(failed)
            assert same(task["error"], {"code": 1, "message": text, "data": {text: text}})
            assert task["statusMessage"] == text
            question = (await stream.told(asked, "input_required"))["inputRequests"][key]["params"]["message"]
            assert question == f"{text} 0"
        await client.update(asked, {key: accept(text=text)})
        for stream in (over_http, over_stdio):
            result = (await stream.ended(asked))["result"]
            assert same(result["structuredContent"]["answers"], [[f"{text} 0", text]])
            assert result["structuredContent"]["arguments"]["payload"] == text
            for task_id in ids:
                assert same(stream.tasks(task_id)[-1], (await client.get(task_id)).result)
        assert over_http.raw.isascii()
        assert same(naively(over_http), over_http.messages)
        assert {message["params"]["_meta"][SUBSCRIPTION] for message in over_http.messages} == {text}
        await pipe.send(cancelled(text))


async def test_any_text_is_told_as_the_status_of_a_working_task(client: McpClient, pipe: StdioClient) -> None:
    task_id = await client.start("status", {"x": TEXT + FORGED})

    async def shown() -> bool:
        return "statusMessage" in (await client.get(task_id)).result

    await eventually(shown, what="the status message")
    async with both(client, pipe, [task_id]) as streams:
        for stream in streams:
            assert (await stream.told(task_id))["statusMessage"] == TEXT + FORGED
        await client.cancel(task_id)
        for stream in streams:
            await stream.ended(task_id)
        assert same(naively(streams[0]), streams[0].messages)


# PL-09


async def test_nulls_and_numbers_are_told_as_they_are_and_what_is_not_there_is_absent(
    client: McpClient, pipe: StdioClient
) -> None:
    emitted = await client.start("emit", {"x": VALUE})
    echoed = await client.start("echo_task", {"x": VALUE})
    failed = await client.start("boom", {"kind": "rpc", "code": 1, "data": VALUE})
    sampled = await client.start("profile", {"x": VALUE})
    (key,) = await client.parked(sampled)
    ids = [emitted, echoed, failed, sampled]
    always = {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"}
    async with both(client, pipe, ids) as streams:
        for stream in streams:
            question = await stream.told(sampled, "input_required")
            assert question.keys() == {*always, "pollIntervalMs", "inputRequests"}
        await client.update(sampled, {key: accept(name="x", age=9007199254740993)})
        for stream in streams:
            told = {task_id: await stream.ended(task_id) for task_id in ids}
            for task_id, task in told.items():
                assert same(task, (await client.get(task_id)).result)
                assert isinstance(task["ttlMs"], int)
                extra = {"error", "statusMessage"} if task_id == failed else {"result"}
                assert task.keys() == always | extra
            assert same(told[emitted]["result"]["structuredContent"], VALUE)
            assert same(told[echoed]["result"]["structuredContent"], {"x": VALUE})
            assert same(told[failed]["error"], {"code": 1, "message": "boom", "data": VALUE})
            assert told[sampled]["result"]["structuredContent"]["age"] == 9007199254740993
            for task_id in (emitted, echoed, sampled):
                result = told[task_id]["result"]
                assert result.keys() == {"content", "structuredContent", "resultType"}
                assert [block.keys() for block in result["content"]] == [{"type", "text"}]
                assert same(json.loads(result["content"][0]["text"]), result["structuredContent"])
