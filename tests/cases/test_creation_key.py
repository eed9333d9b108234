"""The creation key: of all calls of one caller with the same key the first makes the task, and the others find it,
whoever answers them, whatever became of the connection, the worker, or the task itself.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus

from bridge.call import CREATION_KEY, MAX_CREATION_KEY_CHARS
from bridge.identity import LOCAL
from bridge.task_ids import TaskIds
from tests.cases.client import FORMS, FULL, TASKS, McpClient, Reply, accept
from tests.cases.counts import all_finished, counts
from tests.cases.stack import SEALING_KEY, Process, Programs, Stack
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

NEWER_KEY: Final = "n" * 32


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rotated(stack: Stack, worker: Process) -> Process:
    """Another bridge, whose key ring has the shared bridge's key in second place."""
    return await stack.bridge(MCP_TASKS_SEALING_KEYS=f"{NEWER_KEY},{SEALING_KEY}")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def second(stack: Stack, worker: Process) -> Process:
    """A replica of the shared bridge."""
    return await stack.bridge()


@pytest_asyncio.fixture(loop_scope="session")
async def replica(second: Process) -> AsyncIterator[McpClient]:
    """A client of the replica."""
    async with McpClient(second.url) as client:
        yield client


async def keyed(
    client: McpClient, key: Any, tool: str = "slow", arguments: Mapping[str, Any] | None = None, **changes: Any
) -> Reply:
    """A call with this creation key."""
    return await client.call(tool, arguments, meta={CREATION_KEY: key}, **changes)


def task_id_of(key: str, sealing_key: str = SEALING_KEY) -> str:
    """Where the task of a key is."""
    return TaskIds([sealing_key]).of_creation_key(LOCAL.principal, key)[0]


# The same task


async def test_a_repeated_call_is_given_the_first_task_wherever_it_is_sent(
    client: McpClient, replica: McpClient
) -> None:
    key = label = unique("repeat")
    work = {"seconds": 1, "label": label}
    first = (await keyed(client, key, arguments=work)).result
    assert (first["resultType"], first["status"]) == ("task", "working")
    for repeating in (client, replica):
        again = (await keyed(repeating, key, arguments=dict(reversed(work.items())))).result
        assert (again["resultType"], again["taskId"]) == ("task", first["taskId"])
        assert (again["createdAt"], again["ttlMs"]) == (first["createdAt"], first["ttlMs"])
    done = await client.finished(first["taskId"])
    for repeating in (client, replica):
        ended = (await keyed(repeating, key, arguments=work)).result
        told = {name: done[name] for name in ("taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs")}
        assert {name: ended[name] for name in told} == told
        assert (ended["resultType"], ended["status"]) == ("task", "completed")
    assert await client.count(label) == 1


@pytest.mark.parametrize(("tool", "arguments"), [("slow", {"seconds": 60}), ("ask", {"n": 1})])
async def test_a_cancelled_task_is_not_made_anew(client: McpClient, tool: str, arguments: dict[str, Any]) -> None:
    key = unique("cancelled")
    task_id = (await keyed(client, key, tool, arguments)).result["taskId"]
    await client.cancel(task_id)
    await client.finished(task_id)
    again = (await keyed(client, key, tool, arguments)).result
    assert (again["taskId"], again["status"]) == (task_id, "cancelled")


async def test_a_repeat_finds_its_task_waiting_for_input(client: McpClient) -> None:
    key = unique("parked")
    task_id = (await keyed(client, key, "ask", {"n": 1})).result["taskId"]
    await client.parked(task_id)
    again = (await keyed(client, key, "ask", {"n": 1})).result
    assert (again["taskId"], again["status"]) == (task_id, "input_required")
    assert "inputRequests" not in again
    await client.cancel(task_id)


@counts("calls", cut=20, full=100)
async def test_equal_calls_at_one_time_make_one_task(client: McpClient, replica: McpClient, calls: int) -> None:
    key = label = unique("together")
    repeating = [(client, replica)[number % 2] for number in range(calls)]
    replies = await asyncio.gather(
        *(keyed(one, key, arguments={"seconds": 0, "label": label}, id="the same") for one in repeating)
    )
    assert {reply.result["taskId"] for reply in replies} == {task_id_of(key)}
    await client.finished(task_id_of(key))
    assert await client.count(label) == 1


async def test_waiting_callers_at_one_time_get_the_result_of_one_run(client: McpClient, replica: McpClient) -> None:
    key = label = unique("waiting-together")
    work = {"seconds": 0.5, "label": label}
    replies = await asyncio.gather(*(keyed(one, key, arguments=work, capabilities={}) for one in (client, replica) * 5))
    assert all(reply.result["structuredContent"] == {"steps": 1} for reply in replies)
    assert await client.count(label) == 1


async def test_a_run_that_was_made_for_a_caller_who_waits_is_waited_for_by_every_other(
    client: McpClient, replica: McpClient
) -> None:
    """It has the bounds of a run that nobody holds a handle of."""
    key = label = unique("made-to-wait")
    work = {"seconds": 1, "label": label}
    waiting = asyncio.create_task(keyed(client, key, arguments=work, capabilities={}))

    async def started() -> bool:
        return (await replica.get(task_id_of(key))).code is None

    await eventually(started, what="the run")
    found, again = [(await keyed(replica, key, arguments=work)).result for _ in range(2)]
    assert (found["resultType"], found["structuredContent"]) == ("complete", {"steps": 1})
    assert (await waiting).result == found == again
    assert await client.count(label) == 1


async def test_a_run_that_is_a_task_is_refused_to_a_caller_who_takes_none_and_goes_on(
    client: McpClient, replica: McpClient
) -> None:
    key = label = unique("made-a-task")
    work = {"seconds": 1, "label": label}
    task_id = (await keyed(client, key, arguments=work)).result["taskId"]
    for capabilities in ({}, FORMS):
        refused = await keyed(replica, key, arguments=work, capabilities=capabilities)
        assert (refused.status, refused.code) == (400, -32021)
        assert TASKS in refused.message["error"]["data"]["requiredCapabilities"]["extensions"]
    assert (await client.finished(task_id))["result"]["structuredContent"] == {"steps": 1}
    assert await client.count(label) == 1


async def test_calls_without_a_key_are_as_many_tasks(client: McpClient) -> None:
    label = unique("unkeyed")
    ids = {await client.start("slow", {"seconds": 0, "label": label}) for _ in range(3)}
    assert len(ids) == 3
    await all_finished(client, ids, within=20)
    assert await client.count(label) == 3


async def test_a_quick_tool_answers_a_repeat_with_the_result_at_once(client: McpClient) -> None:
    key = label = unique("quick")
    first = await keyed(client, key, "quick", {"label": label})
    again = await keyed(client, key, "quick", {"label": label})
    assert first.result == again.result and first.result["resultType"] == "complete"
    assert await client.count(label) == 1


async def test_a_tool_that_asks_before_its_handle_hands_out_one_task(client: McpClient) -> None:
    key = label = unique("before")
    both = {"name": accept(text="Ada")}
    first = (await keyed(client, key, "ask_first", {"label": label})).result
    assert first["resultType"] == "input_required"
    again = (await keyed(client, key, "ask_first", {"label": label})).result
    assert again["inputRequests"] == first["inputRequests"]
    created = await keyed(client, key, "ask_first", {"label": label}, state=again["requestState"], responses=both)
    found = await keyed(client, key, "ask_first", {"label": label})
    assert created.result["taskId"] == found.result["taskId"] == task_id_of(key)
    await client.cancel(task_id_of(key))


# Another call


@pytest.mark.parametrize(
    ("tool", "more"), [("slow", {"steps": 2}), ("slow", {"label": "another"}), ("bounded", {}), ("stubborn", {})]
)
@pytest.mark.parametrize("capabilities", [FULL, FORMS], ids=["takes a handle", "waits"])
async def test_a_key_that_was_used_for_another_call_is_refused_and_nothing_starts(
    client: McpClient, replica: McpClient, tool: str, more: dict[str, Any], capabilities: Mapping[str, Any]
) -> None:
    key = label = unique("other")
    work = {"seconds": 1, "label": label}
    task_id = (await keyed(client, key, arguments=work)).result["taskId"]
    for repeating in (client, replica):
        reply = await keyed(repeating, key, tool, work | more, capabilities=capabilities)
        assert (reply.status, reply.code) == (400, -32602)
        assert reply.message["error"]["data"] == {"reason": "creation_key_reused"}
        assert "creation key" in reply.message["error"]["message"]
        assert task_id not in json.dumps(reply.message) and label not in json.dumps(reply.message)
    assert (await client.finished(task_id))["status"] == "completed"
    assert (await client.count(label), await client.count("another")) == (1, 0)


async def test_a_call_that_never_started_leaves_its_key_free(client: McpClient) -> None:
    key = label = unique("free")
    bad = await keyed(client, key, arguments={"label": label})
    assert bad.result["isError"] is True
    assert (await keyed(client, key, "nope")).code == -32602
    assert (await keyed(client, key, "ask", capabilities={})).code == -32021
    task_id = (await keyed(client, key, arguments={"seconds": 0, "label": label})).result["taskId"]
    await client.finished(task_id)
    assert await client.count(label) == 1


async def test_answers_that_are_too_large_to_be_brought_along_start_nothing(client: McpClient) -> None:
    key, label = unique("large"), unique("large")
    responses = {"name": accept(text="x" * 1_950_000)}
    reply = await keyed(client, key, "ask_named", {"label": label}, responses=responses)
    assert reply.code == -32602 and "maxBytes" in reply.message["error"]["data"]
    assert (await keyed(client, key, "echo_task", {"x": 1})).result["resultType"] == "task"


@pytest.mark.parametrize("key", ["", "x" * (MAX_CREATION_KEY_CHARS + 1), 1, 1.5, True, [], ["x"], {}], ids=repr)
async def test_what_cannot_be_a_key_is_refused_and_nothing_starts(client: McpClient, key: Any) -> None:
    label = unique("shape")
    for capabilities in (FULL, FORMS):
        reply = await keyed(client, key, arguments={"seconds": 0, "label": label}, capabilities=capabilities)
        assert (reply.status, reply.code) == (400, -32602)
        assert CREATION_KEY in reply.message["error"]["message"]
    assert await client.count(label) == 0


@pytest.mark.parametrize("shape", ["{}", " {} ", "{}\n\0", "ключ \U0001f511 {}", "{}" + "x" * 200])
async def test_any_text_can_be_a_key_and_is_no_other(client: McpClient, shape: str) -> None:
    keys = [shape.format(unique("text")), shape.format(unique("text"))]
    ids = [(await keyed(client, key, "echo_task", {"x": 1})).result["taskId"] for key in keys * 2]
    assert ids[:2] == ids[2:] and ids[0] != ids[1]
    assert all(task_id.isascii() and task_id.startswith("task-") and len(task_id) == 37 for task_id in ids)
    trimmed = (await keyed(client, keys[0] + " ", "echo_task", {"x": 1})).result["taskId"]
    assert trimmed not in ids


async def test_null_is_no_key(client: McpClient) -> None:
    ids = {(await keyed(client, None, "echo_task", {"x": 1})).result["taskId"] for _ in range(2)}
    assert len(ids) == 2


async def test_a_key_beside_the_meta_object_is_no_key(client: McpClient) -> None:
    params = {"name": "echo_task", "arguments": {"x": 1}, CREATION_KEY: "k"}
    ids = {(await client.request("tools/call", params)).result["taskId"] for _ in range(2)}
    assert len(ids) == 2


# Answers


async def test_answers_that_come_with_the_first_call_are_used_and_those_of_a_repeat_are_not(
    client: McpClient, replica: McpClient
) -> None:
    key = label = unique("offered")
    arguments = {"label": label}

    async def call(one: McpClient, **responses: Any) -> dict[str, Any]:
        return (await keyed(one, key, "ask_named", arguments, capabilities=FORMS, responses=responses)).result

    first = await call(client, name=accept(text="Ada"))
    assert list(first["inputRequests"]) == ["colour"]
    again = await call(replica, name=accept(text="Eve"), colour=accept(text="red"))
    assert again["inputRequests"] == first["inputRequests"]
    last = await keyed(
        client,
        key,
        "ask_named",
        arguments,
        capabilities=FORMS,
        state=again["requestState"],
        responses={"colour": accept(text="blue")},
    )
    assert last.result["structuredContent"] == {"name": "Ada", "colour": "blue"}
    assert await call(replica, name=accept(text="Eve")) == last.result
    assert await client.count(label) == 1


async def test_a_call_that_brings_every_answer_is_done_once(client: McpClient, replica: McpClient) -> None:
    key = label = unique("all-offered")
    both = {"name": accept(text="Ada"), "colour": accept(text="blue")}
    replies = [
        await keyed(one, key, "ask_named", {"label": label}, capabilities=FORMS, responses=both)
        for one in (client, replica)
    ]
    assert all(reply.result["structuredContent"] == {"name": "Ada", "colour": "blue"} for reply in replies)
    assert await client.count(label) == 1


async def test_a_client_that_may_not_see_the_question_is_refused_and_the_run_goes_on(client: McpClient) -> None:
    key = unique("unasked")
    first = (await keyed(client, key, "any_asker", capabilities=FORMS)).result
    assert (await keyed(client, key, "any_asker", capabilities={})).code == -32021
    (name,) = first["inputRequests"]
    last = await keyed(
        client,
        key,
        "any_asker",
        capabilities=FORMS,
        state=first["requestState"],
        responses={name: accept(text="still here")},
    )
    assert last.result["structuredContent"] == {"text": "still here"}


# Nobody is there


@counts("calls", cut=12, full=60)
@pytest.mark.parametrize("capabilities", [FULL, {}], ids=["takes a handle", "waits"])
async def test_a_call_whose_connection_was_reset_is_found_by_its_repeat(
    client: McpClient, replica: McpClient, capabilities: Mapping[str, Any], calls: int
) -> None:
    chance = random.Random(3)  # noqa: S311 - delays, not secrets
    keys = [unique("reset") for _ in range(calls)]

    async def call_twice(key: str) -> None:
        work = {"seconds": 0.5, "label": key}
        changes = {"meta": {CREATION_KEY: key}, "capabilities": capabilities}
        await client.call_and_reset("slow", work, chance.uniform(0, 0.3), **changes)
        again = (await keyed(replica, key, arguments=work, capabilities=capabilities)).result
        if capabilities:
            assert again["taskId"] == task_id_of(key)
        else:
            assert again["structuredContent"] == {"steps": 1}

    await asyncio.gather(*map(call_twice, keys))
    tasks = await all_finished(client, map(task_id_of, keys), within=30)
    assert {task["status"] for task in tasks.values()} == {"completed"}
    assert [await client.count(key) for key in keys] == [1] * calls


async def begun(engine: Client, task_id: str) -> None:
    """Return once a step of the run is under way."""

    async def probe() -> bool:
        described = await engine.get_workflow_handle(task_id).describe()
        return bool(described.raw_description.pending_activities)

    await eventually(probe, what="the step")


async def leave(calling: asyncio.Task[Reply]) -> None:
    """Close the connection of a call that waits."""
    assert not calling.done()
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)


async def test_a_waiting_caller_that_leaves_gets_the_result_when_it_repeats_its_call(
    client: McpClient, replica: McpClient, engine: Client
) -> None:
    key = label = unique("left")
    work = {"seconds": 3, "label": label}
    calling = asyncio.create_task(keyed(client, key, arguments=work, capabilities={}))

    async def started() -> bool:
        return (await replica.get(task_id_of(key))).code is None

    await eventually(started, what="the run")
    await begun(engine, task_id_of(key))
    await leave(calling)
    again = await keyed(replica, key, arguments=work, capabilities={})
    assert again.result["structuredContent"] == {"steps": 1}
    assert await client.count(label) == 1


async def test_leaving_a_retry_with_the_key_cancels_nothing(
    client: McpClient, replica: McpClient, engine: Client
) -> None:
    key, arguments = unique("left-retry"), {"seconds": 3}
    first = (await keyed(client, key, "ask_then_work", arguments, capabilities=FORMS)).result
    (name,) = first["inputRequests"]
    retry = {"state": first["requestState"], "responses": {name: accept(text="go")}}
    calling = asyncio.create_task(keyed(client, key, "ask_then_work", arguments, capabilities=FORMS, **retry))
    await begun(engine, task_id_of(key))
    await leave(calling)
    again = await keyed(replica, key, "ask_then_work", arguments, capabilities=FORMS)
    assert again.result["structuredContent"] == {"text": "go"}


async def test_leaving_a_retry_that_does_not_repeat_the_key_cancels_nothing_either(
    client: McpClient, engine: Client
) -> None:
    key, arguments = unique("left-keyless"), {"seconds": 3}
    first = (await keyed(client, key, "ask_then_work", arguments, capabilities=FORMS)).result
    (name,) = first["inputRequests"]
    retry = {"state": first["requestState"], "responses": {name: accept(text="go")}}
    calling = asyncio.create_task(client.call("ask_then_work", arguments, capabilities=FORMS, **retry))
    await begun(engine, task_id_of(key))
    await leave(calling)
    again = await keyed(client, key, "ask_then_work", arguments, capabilities=FORMS)
    assert again.result["structuredContent"] == {"text": "go"}


async def test_without_a_worker_a_waiting_caller_is_told_so_and_finds_its_run_later(
    stack: Stack, engine: Client
) -> None:
    key = label = unique("deserted")
    programs = Programs(environment={**stack.environment, "MCP_TASKS_TASK_QUEUE": unique("deserted")})
    work = {"seconds": 0, "label": label}
    try:
        bridge = await programs.bridge()
        async with McpClient(bridge.url, {}) as client:
            for _ in range(2):
                reply = await keyed(client, key, arguments=work)
                assert reply.code == -32603
                assert reply.message["error"]["data"]["retryAfterMs"] > 0
            described = await engine.get_workflow_handle(task_id_of(key)).describe()
            assert described.status is WorkflowExecutionStatus.RUNNING
            assert not described.raw_description.workflow_extended_info.cancel_requested
            await programs.worker()
            reply = await keyed(client, key, arguments=work)
            assert reply.result["structuredContent"] == {"steps": 1}
            assert await client.count(label) == 1
    finally:
        await programs.close()


# Keys of the deployment


async def test_a_task_of_before_a_rotation_is_found_after_it(client: McpClient, rotated: Process) -> None:
    key = label = unique("rotated")
    work = {"seconds": 0.5, "label": label}
    first = (await keyed(client, key, arguments=work)).result
    async with McpClient(rotated.url) as after:
        assert (await keyed(after, key, arguments=work)).result["taskId"] == first["taskId"]
        assert (await keyed(after, key, arguments={**work, "steps": 2})).code == -32602
        assert (await after.finished(first["taskId"]))["status"] == "completed"
        later = unique("after")
        made = [(await keyed(after, later, arguments=work)).result["taskId"] for _ in range(2)]
        assert made == [task_id_of(later, NEWER_KEY)] * 2
        await after.finished(made[0])
    assert await client.count(label) == 2


@counts("keys", cut=12, full=60)
async def test_replicas_in_the_middle_of_a_rotation_agree_on_one_task(
    stack: Stack, client: McpClient, rotated: Process, keys: int
) -> None:
    """One replica puts the new key first already, the other has it in second place."""
    prepared = await stack.bridge(MCP_TASKS_SEALING_KEYS=f"{SEALING_KEY},{NEWER_KEY}")
    async with McpClient(rotated.url) as one, McpClient(prepared.url) as two:

        async def call(key: str) -> None:
            replies = await asyncio.gather(
                *(keyed(each, key, "ask", {"n": 1, "label": key}) for each in (one, two) * 3)
            )
            (task_id,) = {reply.result["taskId"] for reply in replies}
            (question,) = await client.parked(task_id)
            await client.update(task_id, {question: accept(text="yes")})
            assert (await client.finished(task_id))["status"] == "completed"
            ids = {task_id_of(key), task_id_of(key, NEWER_KEY)} - {task_id}
            for other in ids:
                if (await client.get(other)).code is None:
                    assert (await client.finished(other))["status"] == "cancelled"

        names = [unique("rotating") for _ in range(keys)]
        for few in range(0, keys, 6):
            await asyncio.gather(*map(call, names[few : few + 6]))
    assert [await client.count(name) for name in names] == [1] * keys
