"""IU: questions and answers. A key is asked once in a task's life; the first answer that fits is used, and no other."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.cases.client import McpClient, accept
from tests.cases.counts import counts
from tests.cases.stack import Process, Stack
from tests.support import unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACKNOWLEDGED = {"resultType": "complete"}
CHANCE = random.Random(7)  # noqa: S311 - orders and delays, not secrets


@pytest_asyncio.fixture(loop_scope="session")
async def other(bridge: Process) -> AsyncIterator[McpClient]:
    """A second client, on connections of its own."""
    async with McpClient(bridge.url) as other:
        yield other


async def answer(client: McpClient, task_id: str, answers: dict[str, str]) -> None:
    """Accept questions with texts; the update is acknowledged."""
    reply = await client.update(task_id, {key: accept(text=text) for key, text in answers.items()})
    assert reply.result == ACKNOWLEDGED


async def answers_of(client: McpClient, task_id: str) -> list[list[str]]:
    """The question and answer pairs of a completed `ask`."""
    task = await client.finished(task_id)
    assert task["status"] == "completed"
    pairs: list[list[str]] = task["result"]["structuredContent"]["answers"]
    return pairs


# IU-01


@pytest.mark.parametrize(
    "junk",
    [{}, {"wrong": accept(text="x")}, {"": accept(text="x")}, {"wrong": None}, {"wrong": [1]}, {"a": 1, "b": "c"}],
    ids=["nothing", "unknown-key", "empty-key", "null", "list", "several"],
)
async def test_unknown_keys_are_acknowledged_and_change_nothing(client: McpClient, junk: dict[str, Any]) -> None:
    task_id = await client.start("ask", {"n": 1})
    asked = await client.parked(task_id)
    before = (await client.get(task_id)).result
    assert (await client.update(task_id, junk)).result == ACKNOWLEDGED
    assert (await client.get(task_id)).result == before
    assert (await client.update(task_id, {**junk, **dict.fromkeys(asked, accept(text="right"))})).result == ACKNOWLEDGED
    assert await answers_of(client, task_id) == [["Question 0", "right"]]


# IU-03


async def test_answers_in_one_update_find_their_questions_in_any_order(client: McpClient) -> None:
    task_id = await client.start("ask", {"n": 4, "mode": "parallel"})
    asked = await client.parked(task_id, 4)
    by_key = {key: f"to {request['params']['message']}" for key, request in reversed(asked.items())}
    await answer(client, task_id, by_key)
    assert await answers_of(client, task_id) == [[f"Question {n}", f"to Question {n}"] for n in range(4)]


@counts("runs", cut=4, full=20)
async def test_concurrent_answers_find_their_questions(client: McpClient, runs: int) -> None:
    for _ in range(runs):
        task_id = await client.start("ask", {"n": 4, "mode": "parallel"})
        asked = list((await client.parked(task_id, 4)).items())
        CHANCE.shuffle(asked)
        await asyncio.gather(
            *(answer(client, task_id, {key: f"to {request['params']['message']}"}) for key, request in asked)
        )
        assert await answers_of(client, task_id) == [[f"Question {n}", f"to Question {n}"] for n in range(4)]


@counts("pause", cut=0.5, full=3.0)
async def test_after_a_partial_update_exactly_the_rest_is_asked(client: McpClient, pause: float) -> None:
    task_id = await client.start("ask", {"n": 4, "mode": "parallel"})
    asked = await client.parked(task_id, 4)
    keys = CHANCE.sample(list(asked), 4)
    first = {key: f"to {asked[key]['params']['message']}" for key in keys[:2]}
    rest = {key: asked[key] for key in asked if key in keys[2:]}
    await answer(client, task_id, first)
    until = asyncio.get_running_loop().time() + pause
    while asyncio.get_running_loop().time() < until:
        task = (await client.get(task_id)).result
        assert task["status"] == "input_required"
        assert task["inputRequests"] == rest
    await answer(client, task_id, {key: f"to {request['params']['message']}" for key, request in rest.items()})
    assert await answers_of(client, task_id) == [[f"Question {n}", f"to Question {n}"] for n in range(4)]


# IU-04


@counts("runs", cut=4, full=30)
async def test_exactly_one_of_several_answers_is_used_once(
    client: McpClient, other: McpClient, stack: Stack, runs: int
) -> None:
    for _ in range(runs):
        label = unique("once")
        task_id = await client.start("ask", {"n": 2, "label": label})
        (first,) = await client.parked(task_id)
        texts = ["A", "B"] * 5
        await asyncio.gather(*(answer((client, other)[n % 2], task_id, {first: text}) for n, text in enumerate(texts)))
        (second,) = await client.parked(task_id, without=(first,))
        assert stack.side_effects(label) == 1
        assert set((await client.get(task_id)).result["inputRequests"]) == {second}
        await answer(client, task_id, {second: "C"})
        pairs = await answers_of(client, task_id)
        assert pairs[0][1] in {"A", "B"}
        assert pairs[1] == ["Question 1", "C"]
        assert stack.side_effects(label) == 2


async def test_a_decline_and_an_accept_that_race_give_one_outcome(client: McpClient) -> None:
    task_id = await client.start("profile")
    (key,) = await client.parked(task_id)
    accepted, declined = accept(name="x"), {"action": "decline"}
    sent = [accepted, declined] * 3
    replies = await asyncio.gather(*(client.update(task_id, {key: one}) for one in sent))
    assert all(reply.result == ACKNOWLEDGED for reply in replies)
    content = (await client.finished(task_id))["result"]["structuredContent"]
    assert content in ({"name": "x", "age": 0, "tier": "a", "tags": []}, {"action": "decline"})


# IU-05


async def test_a_late_copy_of_the_first_answer_does_not_answer_the_second_question(client: McpClient) -> None:
    task_id = await client.start("ask", {"n": 2, "message": "Same?"})
    (first,) = await client.parked(task_id)
    await answer(client, task_id, {first: "one"})
    (second,) = await client.parked(task_id, without=(first,))
    for _ in range(5):
        await answer(client, task_id, {first: "one"})
    await answer(client, task_id, {first: "another"})
    assert (await client.update(task_id, {first: {"action": "decline"}})).result == ACKNOWLEDGED
    task = (await client.get(task_id)).result
    assert task["status"] == "input_required"
    assert set(task["inputRequests"]) == {second}
    await answer(client, task_id, {second: "two"})
    assert [text for _, text in await answers_of(client, task_id)] == ["one", "two"]


async def test_an_answer_sent_many_times_at_once_answers_one_question(client: McpClient) -> None:
    task_id = await client.start("ask", {"n": 3})
    keys: tuple[str, ...] = ()
    for number in range(3):
        asked = await client.parked(task_id, without=keys)
        keys = (*keys, *asked)
        await asyncio.gather(*(answer(client, task_id, {keys[-1]: f"{number}"}) for _ in range(5)))
    assert [text for _, text in await answers_of(client, task_id)] == ["0", "1", "2"]


# IU-07

BAD_CONTENT: dict[str, tuple[Any, str]] = {
    "empty": ({}, "name"),
    "null": (None, "content"),
    "list": ([], "content"),
    "text": ("x", "content"),
    "number-for-text": ({"name": 42}, "name"),
    "null-for-text": ({"name": None}, "name"),
    "too-short": ({"name": ""}, "name"),
    "below-minimum": ({"name": "x", "age": -5}, "age"),
    "text-for-number": ({"name": "x", "age": "42"}, "age"),
    "fraction-for-integer": ({"name": "x", "age": 1.5}, "age"),
    "boolean-for-integer": ({"name": "x", "age": True}, "age"),
    "null-for-integer": ({"name": "x", "age": None}, "age"),
    "object-for-integer": ({"name": "x", "age": {}}, "age"),
    "not-an-option": ({"name": "x", "tier": "z"}, "tier"),
    "list-for-option": ({"name": "x", "tier": ["a"]}, "tier"),
    "not-in-list-options": ({"name": "x", "tags": ["x", "z"]}, "tags"),
    "text-for-list": ({"name": "x", "tags": "x"}, "tags"),
    "nested-in-list": ({"name": "x", "tags": [["x"]]}, "tags"),
    "extra": ({"name": "x", "nested": {"a": 1}}, "nested"),
}


@pytest.mark.parametrize(("content", "field"), BAD_CONTENT.values(), ids=BAD_CONTENT)
async def test_content_that_breaks_the_schema_is_refused_by_name_and_the_question_stays(
    client: McpClient, content: Any, field: str
) -> None:
    await _refused_then_answered(client, {"action": "accept", "content": content}, field)


@pytest.mark.parametrize(
    ("response", "word"),
    [
        ({"action": "accept"}, "content"),
        ({"action": "maybe", "content": {"name": "x"}}, "action"),
        ({"action": ["accept"]}, "action"),
        ({"content": {"name": "x"}}, "action"),
        ({}, "action"),
        (None, "object"),
        ("accept", "object"),
        ([{"action": "accept"}], "object"),
    ],
    ids=["no-content", "unknown-action", "list-action", "no-action", "empty", "null", "text", "list"],
)
async def test_a_response_that_is_no_elicitation_result_is_refused_by_name_and_the_question_stays(
    client: McpClient, response: Any, word: str
) -> None:
    await _refused_then_answered(client, response, word)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 400], ids=["infinite", "minus-infinite", "huge"])
async def test_a_number_beyond_reason_is_refused_or_used_and_never_wedges_the_task(
    client: McpClient, number: str
) -> None:
    task_id = await client.start("profile")
    (key,) = await client.parked(task_id)
    params = {"taskId": task_id, "inputResponses": {key: accept(name="x", age=123454321)}}
    body = json.dumps(client.body("tasks/update", params)).replace("123454321", number).encode()
    reply = await client.post(body, client.headers("tasks/update", params))
    assert reply.code in {-32602, -32600, -32700, None}
    if reply.code is not None:
        assert (await client.update(task_id, {key: accept(name="x")})).result == ACKNOWLEDGED
    assert (await client.finished(task_id))["status"] == "completed"


async def test_one_bad_answer_keeps_the_good_ones_of_its_update_from_being_used(client: McpClient) -> None:
    task_id = await client.start("ask", {"n": 2, "mode": "parallel"})
    good, bad = asked = await client.parked(task_id, 2)
    reply = await client.update(task_id, {good: accept(text="x"), bad: accept(text=1)})
    assert reply.code == -32602
    assert bad in reply.message["error"]["message"]
    assert (await client.get(task_id)).result["inputRequests"] == asked
    await answer(client, task_id, {good: "a", bad: "b"})
    assert [text for _, text in await answers_of(client, task_id)] == ["a", "b"]


async def _refused_then_answered(client: McpClient, response: Any, word: str) -> None:
    task_id = await client.start("profile")
    (key,) = asked = await client.parked(task_id)
    reply = await client.update(task_id, {key: response})
    assert reply.code == -32602
    error = reply.message["error"]
    assert key in error["message"]
    assert error["data"]["key"] == key
    assert word in error["data"]["reason"]
    assert (await client.get(task_id)).result["inputRequests"] == asked
    assert (await client.update(task_id, {key: accept(name="x")})).result == ACKNOWLEDGED
    content = (await client.finished(task_id))["result"]["structuredContent"]
    assert content == {"name": "x", "age": 0, "tier": "a", "tags": []}


# IU-09

CONTENTS: dict[str, dict[str, Any]] = {
    "omitted": {},
    "null": {"content": None},
    "empty": {"content": {}},
    "unfit": {"content": {"name": 5}},
    "list": {"content": [1]},
}


@pytest.mark.parametrize(
    ("action", "content"),
    [
        pytest.param(a, c, id=f"{a}-{name}")
        for a, (name, c) in itertools.product(("decline", "cancel"), CONTENTS.items())
    ],
)
async def test_declining_and_cancelling_need_no_content(
    client: McpClient, action: str, content: dict[str, Any]
) -> None:
    task_id = await client.start("profile")
    (key,) = await client.parked(task_id)
    assert (await client.update(task_id, {key: {"action": action, **content}})).result == ACKNOWLEDGED
    task = await client.finished(task_id)
    assert task["status"] == "completed"
    assert task["result"]["structuredContent"] == {"action": action}


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_tool_that_does_not_expect_a_refusal_completes_with_a_clear_message(
    client: McpClient, action: str
) -> None:
    task_id = await client.start("ask", {"n": 2, "mode": "parallel"})
    key, _ = await client.parked(task_id, 2)
    assert (await client.update(task_id, {key: {"action": action}})).result == ACKNOWLEDGED
    task = await client.finished(task_id)
    assert task["status"] == "completed"
    assert task["result"]["isError"] is True
    assert "question" in task["result"]["content"][0]["text"]


# IU-10


@counts("runs,limit", cut=(16, 0.5), full=(200, 2.0))
async def test_an_answer_that_meets_the_end_of_its_question_is_used_or_the_task_says_it_was_not(
    client: McpClient, runs: int, limit: float
) -> None:
    loop = asyncio.get_running_loop()

    async def race(number: int) -> str:
        task_id = await client.start("ask_with_timeout", {"seconds": limit})
        asked_at = loop.time()
        (key,) = await client.parked(task_id)
        await asyncio.sleep(max(0.0, asked_at + limit - 0.1 + 0.2 * number / runs - loop.time()))
        sent_at = loop.time()
        reply = await client.update(task_id, {key: accept(text="mine")})
        assert loop.time() - sent_at < 3
        assert reply.result == ACKNOWLEDGED
        content = (await client.finished(task_id))["result"]["structuredContent"]
        assert content in ({"outcome": "answered", "answer": "mine"}, {"outcome": "timed out"})
        return str(content["outcome"])

    for first in range(0, runs, 4):
        await asyncio.gather(*(race(number) for number in range(first, min(first + 4, runs))))


@counts("runs", cut=6, full=100)
async def test_an_answer_that_races_a_cancel_gives_one_whole_outcome(
    client: McpClient, other: McpClient, runs: int
) -> None:
    for number in range(runs):
        task_id = await client.start("ask", {"n": 1})
        (key,) = await client.parked(task_id)
        racers = [client.update(task_id, {key: accept(text="mine")}), other.cancel(task_id)]
        replies = await asyncio.gather(*(racers if number % 2 else reversed(racers)))
        assert all(reply.result == ACKNOWLEDGED for reply in replies)
        task = await client.finished(task_id)
        if task["status"] == "completed":
            assert task["result"]["structuredContent"]["answers"] == [["Question 0", "mine"]]
        else:
            assert task["status"] == "cancelled"
            assert "result" not in task


@counts("runs", cut=4, full=100)
async def test_late_answers_that_race_the_last_one_are_acknowledged(
    client: McpClient, other: McpClient, runs: int
) -> None:
    for _ in range(runs):
        task_id = await client.start("ask", {"n": 2, "mode": "parallel"})
        first, last = await client.parked(task_id, 2)
        await answer(client, task_id, {first: "first"})
        await asyncio.gather(
            answer(client, task_id, {last: "last"}),
            *(answer(other, task_id, {key: "late"}) for key in (first, first, first)),
        )
        assert [text for _, text in await answers_of(client, task_id)] == ["first", "last"]


# IU-11


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [
        ("ask", {"n": 1}, "completed"),
        ("boom", {"kind": "rpc"}, "failed"),
        ("slow", {"seconds": 60}, "cancelled"),
    ],
    ids=["completed", "failed", "cancelled"],
)
async def test_an_update_of_a_finished_task_is_acknowledged_and_changes_nothing(
    client: McpClient, tool: str, arguments: dict[str, Any], status: str
) -> None:
    task_id = await client.start(tool, arguments)
    key = "old"
    if status == "completed":
        (key,) = await client.parked(task_id)
        await answer(client, task_id, {key: "x"})
    elif status == "cancelled":
        await client.cancel(task_id)
    before = await client.finished(task_id)
    assert before["status"] == status
    for responses in ({key: accept(text="y")}, {key: accept(text=1)}, {"new": accept(text="y")}, {}):
        assert (await client.update(task_id, responses)).result == ACKNOWLEDGED
    assert (await client.get(task_id)).result == before


# IU-13


@counts("wait", cut=5.5, full=30.0)
async def test_waiting_for_a_person_does_not_eat_the_limit_of_the_work(client: McpClient, wait: float) -> None:
    task_id = await client.start("ask_then_work", {"seconds": 1})  # its work may take 5 s
    (key,) = await client.parked(task_id)
    await asyncio.sleep(wait)
    await answer(client, task_id, {key: "yes"})
    task = await client.finished(task_id)
    assert task["status"] == "completed"
    assert task["result"]["structuredContent"] == {"text": "yes"}


async def test_a_question_that_nobody_answers_waits_until_the_lifetime_ends_and_no_longer(
    client: McpClient, stack: Stack
) -> None:
    label = unique("bounded")
    loop = asyncio.get_running_loop()
    created = loop.time()
    task_id = await client.start("ask_bounded", {"label": label})
    asked = await client.parked(task_id)
    while loop.time() < created + 3.5:
        task = (await client.get(task_id)).result
        assert task["status"] == "input_required"
        assert task["inputRequests"] == asked
        assert task["ttlMs"] == 4000
        await asyncio.sleep(0.2)
    task = await client.finished(task_id, within=5)
    assert task["status"] == "failed"
    assert task["error"]["code"] == -32603
    assert "lifetime" in task["statusMessage"]
    assert stack.side_effects(label) == 1  # it unwound
