"""The life of a task (LC): there at once, never back, a pure read, and always an end."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
import pytest_asyncio
from temporalio.client import Client

from bridge.status import PARKED_FACTOR
from tests.cases.client import FORMS, TASKS, TERMINAL, McpClient, accept
from tests.cases.stack import Process, Stack
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

INSIDES: Final = ("Traceback", 'File "', ".py", "temporal", "grpc", "RPCError", "workflow", "activity", "task queue")
"""What no client may read (in lower case): the inside of the house."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def second(stack: Stack, worker: Process) -> Process:
    """Another bridge, elsewhere in the world."""
    return await stack.bridge(TZ="Asia/Kathmandu")


@pytest_asyncio.fixture(loop_scope="session")
async def elsewhere(second: Process) -> AsyncIterator[McpClient]:
    """A client of the other bridge."""
    async with McpClient(second.url) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def deserted(stack: Stack) -> AsyncIterator[McpClient]:
    """A client of a bridge on whose queue nobody works."""
    bridge = await stack.bridge(MCP_TASKS_TASK_QUEUE="deserted")
    async with McpClient(bridge.url) as client:
        yield client


def assert_tells_nothing(text: str) -> None:
    """Fail if `text` describes the inside of the house."""
    assert not [word for word in INSIDES if word.lower() in text.lower()], text


# There at once


async def resolves_at_once(creator: McpClient, reader: McpClient, count: int) -> None:
    async def once() -> None:
        called = await creator.call("slow", {"seconds": 0.1})
        async with asyncio.timeout(5):
            reply = await reader.get(called.result["taskId"])
        assert reply.code is None, reply.message
        assert reply.result["createdAt"] == called.result["createdAt"]

    for batch in itertools.batched(range(count), 20) if hasattr(itertools, "batched") else [range(20)] * (count // 20):
        await asyncio.gather(*(once() for _ in batch))


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.full)])
async def test_a_handle_resolves_at_once_on_another_bridge(client: McpClient, elsewhere: McpClient, count: int) -> None:
    await resolves_at_once(client, elsewhere, count)


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.full)])
async def test_a_handle_resolves_at_once_while_nobody_works(client: McpClient, deserted: McpClient, count: int) -> None:
    await resolves_at_once(deserted, client, count)


async def test_ids_are_unguessable_and_fit_into_a_header(client: McpClient) -> None:
    ids = [await client.start("echo_task", {"x": 1}) for _ in range(10)]
    tails = {task_id.rsplit("-", 1)[1] for task_id in ids}
    assert len(tails) == 10 and all(len(bytes.fromhex(tail)) >= 16 for tail in tails)
    for position in range(32):
        assert len({tail[position] for tail in tails}) > 1


# Never back


@dataclass
class Seen:
    """What pollers saw of one task, in the order in which each asked."""

    first: dict[str, Any]
    terminal: dict[str, Any] | None = None
    updated: str = ""

    def look(self, task: dict[str, Any], before: str) -> None:
        """Check one answer against all that was known when it was asked for (`before`: the newest update by then)."""
        assert task["createdAt"] == self.first["createdAt"] <= task["lastUpdatedAt"]
        assert task["lastUpdatedAt"] >= before
        match task["status"]:
            case "completed":
                assert "result" in task
            case "failed":
                assert "error" in task
            case "input_required":
                assert task["inputRequests"]
            case _:
                pass
        if task["status"] in TERMINAL:
            assert self.terminal in (None, task)
            self.terminal = task
        self.updated = max(self.updated, task["lastUpdatedAt"])


@pytest.mark.parametrize(
    ("count", "pollers", "linger"), [(12, 4, 0.3), pytest.param(50, 4, 5.0, marks=pytest.mark.full)]
)
async def test_status_never_goes_back_and_changes_together_with_its_payload(
    client: McpClient, elsewhere: McpClient, count: int, pollers: int, linger: float
) -> None:
    chance = random.Random(7)  # noqa: S311
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("slow", {"seconds": 0.5}),
        ("ask", {"n": 2, "mode": "parallel"}),
        ("boom", {"kind": "rpc", "code": 4711}),
        ("boom", {"kind": "tool", "late": True}),
    ]

    async def start(number: int) -> Seen:
        tool, arguments = kinds[number % len(kinds)]
        return Seen((await client.call(tool, arguments)).result)

    async def cancel_later(task_id: str, delay: float) -> None:
        await asyncio.sleep(delay)
        assert (await client.cancel(task_id)).code is None

    async def poll(poller: McpClient, tasks: list[Seen]) -> None:
        until: float | None = None
        clock = asyncio.get_running_loop().time
        for seen in itertools.cycle(tasks):
            if until is None and all(other.terminal for other in tasks):
                until = clock() + linger
            if until is not None and clock() > until:
                return
            task_id, known, before = seen.first["taskId"], seen.terminal, seen.updated
            task = (await poller.get(task_id)).result
            assert known is None or task == known
            seen.look(task, before)
            for key in task.get("inputRequests", {}):
                await poller.update(task_id, {key: accept(text="yes")})
            await asyncio.sleep(0.02)

    tasks = await asyncio.gather(*(start(number) for number in range(count)))
    cancels = [cancel_later(seen.first["taskId"], chance.uniform(0, 0.8)) for seen in tasks[::3]]
    polls = [poll((client, elsewhere)[number % 2], tasks[number:] + tasks[:number]) for number in range(pollers)]
    async with asyncio.timeout(60):
        await asyncio.gather(*cancels, *polls)


# A pure read


@pytest.mark.parametrize("seconds", [1.5, pytest.param(30.0, marks=pytest.mark.full)])
async def test_reading_changes_nothing(client: McpClient, engine: Client, seconds: float) -> None:
    polled, quiet = await client.start("ask", {"n": 1}), await client.start("ask", {"n": 1})
    for task_id in (polled, quiet):
        await client.parked(task_id)

    async def events() -> int:
        return (await engine.get_workflow_handle(polled).describe()).history_length

    first, length = (await client.get(polled)).result, await events()
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        assert (await client.get(polled)).result == first
        await asyncio.sleep(0.05)
    assert await events() == length
    results = []
    for task_id in (polled, quiet):
        (key,) = await client.parked(task_id)
        await client.update(task_id, {key: accept(text="yes")})
        results.append((await client.finished(task_id))["result"])
        assert (await client.get(task_id)).result == (await client.get(task_id)).result
    assert results[0] == results[1]


# Members


def assert_well_typed(task: dict[str, Any]) -> None:
    """The members of a task have the types of the schema, and what is not there is absent."""
    assert "ttlMs" in task and (task["ttlMs"] is None or (type(task["ttlMs"]) is int and task["ttlMs"] > 0))
    if "pollIntervalMs" in task:
        assert type(task["pollIntervalMs"]) is int and task["pollIntervalMs"] > 0
    if "statusMessage" in task:
        assert isinstance(task["statusMessage"], str)
    assert not {"ttl", "pollInterval", "task"} & task.keys()
    created, updated = (datetime.fromisoformat(task[name]) for name in ("createdAt", "lastUpdatedAt"))
    assert created.utcoffset() == updated.utcoffset() == timedelta(0)
    assert created <= updated
    assert abs(datetime.now(UTC) - created) < timedelta(minutes=1)


LIVES: Final[list[tuple[str, dict[str, Any], str, bool]]] = [
    ("slow", {"seconds": 20}, "working", False),
    ("bounded", {"seconds": 4}, "working", True),
    ("ask", {"n": 1}, "input_required", False),
    ("ask_bounded", {"label": ""}, "input_required", True),
    ("echo_task", {"x": 1}, "completed", False),
    ("bounded", {"seconds": 0}, "completed", True),
    ("boom", {"kind": "tool"}, "completed", False),
    ("boom", {"kind": "rpc", "code": 4711}, "failed", False),
    ("slow", {"seconds": 30}, "cancelled", False),
    ("status", {"x": "busy"}, "working", False),
]


@pytest.mark.parametrize(("tool", "arguments", "status", "bounded"), LIVES)
async def test_ttl_interval_and_times_are_well_typed_in_every_status_and_the_same_everywhere(
    client: McpClient, elsewhere: McpClient, tool: str, arguments: dict[str, Any], status: str, bounded: bool
) -> None:
    created = (await elsewhere.call(tool, arguments)).result
    task_id = created["taskId"]
    assert_well_typed(created)
    assert (created["ttlMs"] is not None) == bounded
    if status == "cancelled":
        await client.cancel(task_id)
    if status == "input_required":
        await client.parked(task_id)
    elif status != "working":
        await client.finished(task_id)
    tasks = [(await reader.get(task_id)).result for reader in (client, elsewhere)]
    for task in tasks:
        assert_well_typed(task)
        assert (task["status"], task["createdAt"]) == (status, created["createdAt"])
        assert task["lastUpdatedAt"] >= created["lastUpdatedAt"]
        if status not in TERMINAL:
            assert task["ttlMs"] == created["ttlMs"]
            factor = PARKED_FACTOR if status == "input_required" else 1
            assert task["pollIntervalMs"] == factor * created["pollIntervalMs"]
    if status != "working":
        assert tasks[0] == tasks[1]


async def test_a_task_is_the_same_after_its_bridge_was_started_anew(client: McpClient, stack: Stack) -> None:
    bridge = await stack.bridge(TZ="Asia/Kathmandu")
    async with McpClient(bridge.url) as before:
        done = await before.start("boom", {"kind": "rpc", "code": -32602, "message": "bad ✓", "data": {"k": [1, None]}})
        asking = await before.start("ask", {"n": 2, "mode": "parallel"})
        await before.finished(done)
        await before.parked(asking, 2)
        known = [(await before.get(task_id)).result for task_id in (done, asking)]
    await bridge.kill()
    assert [(await client.get(task_id)).result for task_id in (done, asking)] == known


async def test_a_lifetime_ends_the_task_as_failed_and_not_before(client: McpClient) -> None:
    created = (await client.call("ask_bounded", {"label": ""})).result
    task = await client.finished(created["taskId"])
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
    assert task["statusMessage"] == task["error"]["message"]
    lived = datetime.fromisoformat(task["lastUpdatedAt"]) - datetime.fromisoformat(task["createdAt"])
    assert lived >= timedelta(milliseconds=created["ttlMs"])
    assert (await client.get(created["taskId"])).result == task


# Always an end

BUGS: Final = "python keyerror assert exit base unserialisable generator chain mute child activity".split()


@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
async def test_an_exception_of_any_kind_ends_the_task_as_a_tool_error(client: McpClient, late: bool) -> None:
    ids = [await client.start("boom", {"kind": kind, "message": "s3cret", "late": late}) for kind in BUGS]
    for kind, task_id in zip(BUGS, ids, strict=True):
        task = await client.finished(task_id)
        assert (task["status"], task["result"]["isError"]) == ("completed", True), kind
        text = task["result"]["content"][0]["text"]
        assert "Reference: " in text and "s3cret" not in text
        assert_tells_nothing(json.dumps(task))
    await client.alive()


async def test_failures_that_cannot_be_stored_as_they_are_end_the_task_all_the_same(client: McpClient) -> None:
    details = await client.finished(await client.start("boom", {"kind": "details", "message": "told"}))
    assert details["result"]["isError"] is True and details["result"]["content"][0]["text"].startswith("told")
    no_detail = await client.finished(await client.start("boom", {"kind": "no_detail", "message": "told"}))
    assert (no_detail["status"], no_detail["error"]) == ("failed", {"code": -32603, "message": "told"})


async def test_an_exception_ends_the_call_of_a_caller_that_waits_too(client: McpClient) -> None:
    for kind in BUGS:
        result = (await client.call("boom", {"kind": kind, "message": "s3cret"}, capabilities={})).result
        assert result["isError"] is True and "s3cret" not in json.dumps(result), kind


@pytest.mark.parametrize("capabilities", [{}, {"extensions": {TASKS: {}}}], ids=["waits", "takes a handle"])
async def test_an_exception_before_the_handle_is_the_answer_of_the_call(
    client: McpClient, capabilities: dict[str, Any]
) -> None:
    bug = await client.call("boom_first", {"kind": "python", "message": "s3cret"}, capabilities=capabilities)
    assert bug.result["resultType"] == "complete" and bug.result["isError"] is True
    assert "s3cret" not in json.dumps(bug.result)
    told = await client.call("boom_first", {"kind": "tool", "message": "told"}, capabilities=capabilities)
    assert (told.result["isError"], told.result["content"][0]["text"]) == (True, "told")
    arguments = {"kind": "rpc", "code": 4711, "message": "m", "data": [1]}
    error = (await client.call("boom_first", arguments, capabilities=capabilities)).message["error"]
    assert error == {"code": 4711, "message": "m", "data": [1]}


# Bad calls


async def test_a_bad_call_fails_before_a_task_exists(deserted: McpClient, engine: Client) -> None:
    before = (await deserted.call("echo_task", {})).result
    for tool in ("nope", "", "Slow", "slow ", "sl" * 500):
        reply = await deserted.call(tool, {"seconds": 1})
        assert (reply.status, reply.code) == (400, -32602), tool
    bad: list[dict[str, Any]] = [
        {"seconds": "abc"},
        {},
        {"seconds": 1, "more": 2},
        {"seconds": None},
        {"seconds": 1, "steps": 0},
        {"seconds": 1, "steps": 1.5},
        {"seconds": 1, "label": 5},
        {"seconds": [1]},
    ]
    for arguments, capabilities in itertools.product(bad, (FORMS, deserted.capabilities)):
        result = (await deserted.call("slow", arguments, capabilities=capabilities)).result
        assert (result["resultType"], result["isError"]) == ("complete", True), arguments
        assert any(name in result["content"][0]["text"] for name in ("seconds", "steps", "label", "more"))
    marker = await deserted.start("slow", {"seconds": 1})

    query = f"TaskQueue = 'deserted' AND StartTime > '{before['createdAt']}'"

    async def listed() -> list[str] | None:
        found = [run.id async for run in engine.list_workflows(query) if run.id != before["taskId"]]
        return found if marker in found else None

    assert await eventually(listed, what="the one good call in the list") == [marker]


async def test_a_question_before_the_handle_is_asked_first_and_the_retry_gets_the_task(client: McpClient) -> None:
    label = unique("first")
    asked = (await client.call("ask_first", {"label": label})).result
    assert asked.keys() == {"resultType", "inputRequests", "requestState"}
    assert (asked["resultType"], list(asked["inputRequests"])) == ("input_required", ["name"])
    retry = await client.call(
        "ask_first", {"label": label}, state=asked["requestState"], responses={"name": accept(text="Ada")}
    )
    assert retry.result["resultType"] == "task" and "requestState" not in retry.result
    task_id = retry.result["taskId"]
    (key,) = await client.parked(task_id)
    assert key != "name"
    await client.update(task_id, {"name": accept(text="Eve"), key: accept(text="blue")})
    result = (await client.finished(task_id))["result"]
    assert (result["resultType"], result["structuredContent"]) == ("complete", {"name": "Ada", "colour": "blue"})
    assert await client.count(label) == 1


# JSON-RPC errors

ERRORS: Final[list[dict[str, Any]]] = [
    {"code": -32602, "message": "bad ✓", "data": {"k": [1, None]}},
    {"code": 4711, "message": "", "data": "text"},
    {"code": 0, "message": "zero", "data": 0},
    {"code": -1, "message": "list", "data": []},
    {"code": 1, "message": "false", "data": False},
    {"code": -32601, "message": "object", "data": {}},
    {"code": -32603, "message": "float", "data": 1e-7},
    {"code": 9007199254740993, "message": "big", "data": 9007199254740993},
    {"code": 5, "message": "no data"},
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: str(error["code"]))
async def test_a_json_rpc_error_keeps_code_message_and_data(
    client: McpClient, elsewhere: McpClient, error: dict[str, Any]
) -> None:
    task_id = await client.start("boom", {"kind": "rpc", **error})
    task = await client.finished(task_id)
    assert (task["status"], task["error"]) == ("failed", error)
    assert isinstance(task["statusMessage"], str)
    assert "result" not in task
    assert (await elsewhere.get(task_id)).result == task
    waited = await client.call("boom", {"kind": "rpc", **error}, capabilities={})
    assert waited.message["error"] == error
