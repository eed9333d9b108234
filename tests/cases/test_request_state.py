"""What a `requestState` stands for a server's memory: it is good at every replica, over restarts and rotations of keys,
until it expires, for the call that it was given for, and for nothing else. And waits without a handle, which have a
limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus

from bridge.call import CREATION_KEY
from tests.cases.client import FORMS, TASKS, McpClient, Reply, accept
from tests.cases.counts import counts
from tests.cases.stack import SEALING_KEY, Process, Stack
from tests.encryption import value_of
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

NEWER_KEY: Final = "n" * 32
LONGEST_CALL: Final = 3


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def second(stack: Stack, worker: Process) -> Process:
    """A replica of the shared bridge."""
    return await stack.bridge()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def impatient(stack: Stack, worker: Process) -> Process:
    """A bridge that lets no call wait for long."""
    return await stack.bridge(MCP_TASKS_LONGEST_CALL_SECONDS=str(LONGEST_CALL))


@pytest_asyncio.fixture(loop_scope="session")
async def hurried(impatient: Process) -> AsyncIterator[McpClient]:
    """A client of that bridge, without the Tasks extension."""
    async with McpClient(impatient.url, FORMS) as client:
        yield client


async def asked(client: McpClient, tool: str = "ask_named", **arguments: Any) -> dict[str, Any]:
    """The first question of a call."""
    result = (await client.call(tool, arguments)).result
    assert result["resultType"] == "input_required", result
    return result


def refused(reply: Reply) -> bool:
    """Whether a state was refused, in the words that every refused state gets."""
    error = reply.message.get("error")
    return reply.status == 400 and error == {
        "code": -32602,
        "message": "Invalid or expired requestState",
        "data": {"reason": "invalid_request_state"},
    }


async def runs(engine: Client, workflow_type: str, label: object) -> list[Any]:
    """The runs of a tool with this value among its arguments, as far as they are listed yet."""
    found = []
    since = datetime.now(UTC) - timedelta(minutes=2)
    query = f"WorkflowType = '{workflow_type}' AND StartTime > '{since.isoformat()}'"
    async for run in engine.list_workflows(query):
        history = await engine.get_workflow_handle(run.id).fetch_history()
        payloads = history.events[0].workflow_execution_started_event_attributes.input.payloads
        if label in value_of(payloads[0]).values():
            found.append(run)
    return found


async def end_of(engine: Client, workflow_type: str, label: object) -> WorkflowExecutionStatus:
    """How the one such run ended, once it has."""

    async def closed() -> list[Any] | None:
        found = await runs(engine, workflow_type, label)
        return found if found and all(run.close_time for run in found) else None

    (run,) = await eventually(closed, what="the end of the run")
    return WorkflowExecutionStatus(run.status)


# Wherever and whenever


@counts("rounds", cut=4, full=20)
async def test_replicas_take_turns_and_every_round_is_worked_once(
    plain: McpClient, second: Process, rounds: int
) -> None:
    label = unique("turns")
    arguments = {"n": rounds, "label": label}
    async with McpClient(second.url, FORMS) as other:
        result, seen = await asked(plain, "ask", **arguments), set[str]()
        for number in range(rounds):
            (key,) = result["inputRequests"]
            assert key not in seen
            seen.add(key)
            one, two = (other, plain) if number % 2 else (plain, other)
            answer = {"state": result["requestState"], "responses": {key: accept(text=f"answer {number}")}}
            result = (await one.call("ask", arguments, **answer)).result
            repeated = await two.call("ask", arguments, **answer | {"responses": {key: accept(text="another answer")}})
            assert repeated.result.get("inputRequests") == result.get("inputRequests")
    assert result["structuredContent"]["answers"] == [[f"Question {i}", f"answer {i}"] for i in range(rounds)]
    assert await plain.count(label) == rounds


async def test_a_state_is_good_after_its_bridge_was_killed_and_started_anew(stack: Stack, plain: McpClient) -> None:
    label = unique("restart")
    answers = {"name": "Ada", "colour": "blue"}
    result: dict[str, Any] = {}
    state = None
    for key in (*answers, None):
        bridge = await stack.bridge()
        async with McpClient(bridge.url, FORMS) as client:
            responses = {name: accept(text=answers[name]) for name in result.get("inputRequests", {})}
            reply = await client.call("ask_named", {"label": label}, state=state, responses=responses)
        await bridge.kill()
        result = reply.result
        state = result.get("requestState")
        assert list(result.get("inputRequests", {})) == ([key] if key else [])
    assert result["structuredContent"] == answers
    assert await plain.count(label) == 1


async def test_a_state_outlives_a_rotation_until_its_key_is_gone(stack: Stack, plain: McpClient) -> None:
    label = unique("rotation")
    first = await asked(plain, label=label)
    rotated = await stack.bridge(MCP_TASKS_SEALING_KEYS=f"{NEWER_KEY},{SEALING_KEY}")
    renewed = await stack.bridge(MCP_TASKS_SEALING_KEYS=NEWER_KEY)
    answer = {"state": first["requestState"], "responses": {"name": accept(text="Ada")}}
    async with McpClient(rotated.url, FORMS) as between, McpClient(renewed.url, FORMS) as after:
        assert refused(await after.call("ask_named", {"label": label}, **answer))
        assert await plain.count(label) == 0
        second = (await between.call("ask_named", {"label": label}, **answer)).result
        assert list(second["inputRequests"]) == ["colour"]
        answer = {"state": second["requestState"], "responses": {"colour": accept(text="blue")}}
        assert refused(await plain.call("ask_named", {"label": label}, **answer))  # has not been given the new key
        last = await after.call("ask_named", {"label": label}, **answer)
    assert last.result["structuredContent"] == {"name": "Ada", "colour": "blue"}
    assert await plain.count(label) == 1


async def test_a_state_expires(stack: Stack, plain: McpClient) -> None:
    label = key = unique("expiry")
    meta = {CREATION_KEY: key}  # so that the run is the first bridge's, and outlives the states of the second
    kept = (await plain.call("ask_named", {"label": label}, meta=meta)).result
    bridge = await stack.bridge(MCP_TASKS_ANSWER_WINDOW_SECONDS="1")
    async with McpClient(bridge.url, FORMS) as other:
        brief = (await other.call("ask_named", {"label": label}, meta=meta)).result
        assert kept["inputRequests"] == brief["inputRequests"]
        await asyncio.sleep(1.1)
        answer = {"responses": {"name": accept(text="late")}, "meta": meta}
        for client in (plain, other):
            assert refused(await client.call("ask_named", {"label": label}, state=brief["requestState"], **answer))
    assert await plain.count(label) == 0
    again = await plain.call("ask_named", {"label": label}, state=kept["requestState"], meta=meta)
    assert list(again.result["inputRequests"]) == ["name"]


# For that call alone


@counts("step", cut=9, full=1)
async def test_a_state_with_one_character_changed_is_refused_wherever_it_is(plain: McpClient, step: int) -> None:
    label = unique("changed")
    state = (await asked(plain, label=label))["requestState"]
    places = sorted({*range(0, len(state), step), *range(16), len(state) - 2, len(state) - 1})
    answers = {"name": accept(text="Eve")}
    for place in places:
        other = "A" if state[place] != "A" else "B"
        changed = state[:place] + other + state[place + 1 :]
        assert refused(await plain.call("ask_named", {"label": label}, state=changed, responses=answers)), place
        shorter = state[:place] + state[place + 1 :]
        assert refused(await plain.call("ask_named", {"label": label}, state=shorter, responses=answers)), place
    assert await plain.count(label) == 0
    right = await plain.call("ask_named", {"label": label}, state=state, responses=answers)
    assert list(right.result["inputRequests"]) == ["colour"]


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state + "=",
        lambda state: state + "\n",
        lambda state: f" {state}",
        lambda state: state + state,
        lambda state: state.removeprefix("v1."),
        lambda state: "v2." + state.removeprefix("v1."),
        lambda state: state.replace("-", "+").replace("_", "/") + "==",
        lambda _: "x" * 100_000,
        lambda _: "v1." + "A" * 100,
    ],
)
async def test_nothing_but_the_very_state_is_taken(plain: McpClient, change: Any) -> None:
    label = unique("spelt")
    state = (await asked(plain, label=label))["requestState"]
    answers = {"name": accept(text="Eve")}
    assert refused(await plain.call("ask_named", {"label": label}, state=change(state), responses=answers))
    assert await plain.count(label) == 0


@pytest.mark.parametrize("state", [5, True, {}, [], 1.5], ids=repr)
async def test_a_state_that_is_no_text_is_invalid(plain: McpClient, state: Any) -> None:
    label = unique("no-text")
    reply = await plain.call("slow", {"seconds": 0, "label": label}, state=state)
    assert (reply.status, reply.code) == (400, -32602)
    assert await plain.count(label) == 0


async def test_a_state_belongs_to_its_method(plain: McpClient) -> None:
    label = unique("method")
    state = (await asked(plain, label=label))["requestState"]
    answers = {"name": accept(text="Eve")}
    params = {"uri": "mcp-task://task-1/history", "requestState": state, "inputResponses": answers}
    headers = {"Mcp-Name": params["uri"]}
    assert refused(await plain.request("resources/read", params, headers=headers))
    again = (await plain.call("ask_named", {"label": label}, state=state)).result
    assert list(again["inputRequests"]) == ["name"]


async def test_the_states_of_two_equal_calls_belong_to_their_own_runs(plain: McpClient) -> None:
    label = unique("equal")
    firsts = [await asked(plain, label=label) for _ in range(2)]
    for first, name in zip(firsts, ("Ada", "Eve"), strict=True):
        answer = {"state": first["requestState"], "responses": {"name": accept(text=name)}}
        first |= (await plain.call("ask_named", {"label": label}, **answer)).result
    for first, name in zip(firsts, ("Ada", "Eve"), strict=True):
        answer = {"state": first["requestState"], "responses": {"colour": accept(text="blue")}}
        last = await plain.call("ask_named", {"label": label}, **answer)
        assert last.result["structuredContent"] == {"name": name, "colour": "blue"}
    assert await plain.count(label) == 2


async def test_an_answer_to_a_question_that_the_state_is_not_about_is_ignored(plain: McpClient) -> None:
    label = unique("ahead")
    first = await asked(plain, label=label)
    both = {"name": accept(text="Ada"), "colour": accept(text="red")}
    second = (await plain.call("ask_named", {"label": label}, state=first["requestState"], responses=both)).result
    assert list(second["inputRequests"]) == ["colour"]
    answer = {"colour": accept(text="red")}
    again = (await plain.call("ask_named", {"label": label}, state=first["requestState"], responses=answer)).result
    assert list(again["inputRequests"]) == ["colour"]  # the first state asked for the name alone
    answer = {"colour": accept(text="blue")}
    last = await plain.call("ask_named", {"label": label}, state=again["requestState"], responses=answer)
    assert last.result["structuredContent"] == {"name": "Ada", "colour": "blue"}


# What a client can be asked


async def test_a_run_that_its_client_can_no_longer_be_asked_about_is_ended(plain: McpClient, engine: Client) -> None:
    label = unique("shrunk")
    first = await asked(plain, "any_asker", x=label)
    retry = await plain.call("any_asker", {"x": label}, state=first["requestState"], capabilities={})
    assert (retry.status, retry.code) == (400, -32021)
    assert retry.message["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}
    assert await end_of(engine, "any_asker", label) is WorkflowExecutionStatus.CANCELED
    late = await plain.call("any_asker", {"x": label}, state=first["requestState"])
    assert late.message["error"] == {"code": -32603, "message": "The call was cancelled"}


async def test_a_tool_that_its_client_cannot_be_asked_by_does_not_start(plain: McpClient, engine: Client) -> None:
    label = unique("unable")
    unable: list[dict[str, Any]] = [{}, {"elicitation": {"url": {}}}, {"sampling": {}}, {"extensions": {TASKS: {}}}]
    for capabilities in unable:
        reply = await plain.call("ask_named", {"label": label}, capabilities=capabilities)
        assert (reply.status, reply.code) == (400, -32021)
        assert reply.message["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}
    await asked(plain, label=label)  # the list lags behind: it is complete when a later run is in it

    async def listed() -> list[Any]:
        return await runs(engine, "ask_named", label)

    assert len(await eventually(listed, what="the run in the list")) == 1


# Long waits


async def test_a_wait_beyond_the_limit_ends_the_run_and_says_how_to_get_a_task(
    hurried: McpClient, engine: Client
) -> None:
    label = unique("long")
    reply = await hurried.call("slow", {"seconds": 60, "label": label})
    assert (reply.status, reply.code) == (200, -32603)
    error = reply.message["error"]
    assert TASKS in error["message"] and "cancelled" in error["message"]
    assert error["data"] == {"reason": "call_too_long", "waitedSeconds": LONGEST_CALL}
    assert await end_of(engine, "slow", label) is WorkflowExecutionStatus.CANCELED
    assert await hurried.count(label) == 0


async def test_the_limit_is_of_each_round(hurried: McpClient, engine: Client) -> None:
    arguments: dict[str, Any] = {"end": "question", "label": unique("long-round")}
    first = await asked(hurried, "quick", **arguments)
    (key,) = first["inputRequests"]
    await asyncio.sleep(LONGEST_CALL)  # what the person takes is none of the call's time
    last = await hurried.call("quick", arguments, state=first["requestState"], responses={key: accept(text="yes")})
    assert last.result["structuredContent"] == {"answer": "yes"}
    arguments = {"end": "question", "then": 60, "label": unique("long-work")}
    second = await asked(hurried, "quick", **arguments)
    (key,) = second["inputRequests"]
    retry = await hurried.call("quick", arguments, state=second["requestState"], responses={key: accept(text="yes")})
    assert (retry.code, retry.message["error"]["data"]["reason"]) == (-32603, "call_too_long")
    assert await end_of(engine, "quick", arguments["label"]) is WorkflowExecutionStatus.CANCELED


async def test_with_a_creation_key_the_run_goes_on_beyond_the_limit_and_is_found(hurried: McpClient) -> None:
    label = unique("long-keyed")
    work = {"seconds": LONGEST_CALL + 1, "label": label}
    meta = {CREATION_KEY: label}
    first = await hurried.call("slow", work, meta=meta)
    assert first.code == -32603 and "creation key" in first.message["error"]["message"]

    async def result() -> dict[str, Any] | None:
        reply = await hurried.call("slow", work, meta=meta)
        if reply.code is None:
            return reply.result
        assert reply.message["error"]["data"]["reason"] == "call_too_long"
        return None

    assert (await eventually(result, what="the result"))["structuredContent"] == {"steps": 1}
    assert await hurried.count(label) == 1


async def test_the_limit_is_not_for_a_client_that_takes_a_handle(impatient: Process) -> None:
    async with McpClient(impatient.url) as client:
        task_id = await client.start("slow", {"seconds": LONGEST_CALL + 0.5})
        quick = await client.call("quick", {"seconds": LONGEST_CALL + 0.5})
        assert quick.result["resultType"] == "complete"  # what its tool may wait is the tool's affair
        assert (await client.finished(task_id))["status"] == "completed"


async def test_closing_the_stream_of_a_call_cancels_its_run(plain: McpClient, engine: Client) -> None:
    label = unique("stream")
    params = {"name": "slow", "arguments": {"seconds": 60, "label": label}}
    body = plain.body("tools/call", params, meta={"progressToken": 1})
    async with (
        aiohttp.ClientSession() as session,
        session.post(plain.url, json=body, headers=plain.headers("tools/call", params)) as response,
    ):
        assert response.content_type == "text/event-stream"
        assert b"notifications/progress" in await response.content.readuntil(b"\n\n")
    assert await end_of(engine, "slow", label) is WorkflowExecutionStatus.CANCELED
    assert await plain.count(label) == 0
