"""Callers without a handle (core MRTR): a call that has a question answers with it, and its retry goes on.

All rounds are one run. What a `requestState` says is sealed: nothing is done for one that was not given to this caller
for this very call, and nothing is done twice for one that is used twice.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus

from tests.cases.client import FORMS, FULL, TASKS, McpClient, Reply, accept
from tests.cases.stack import Process, Stack
from tests.encryption import value_of
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKEN: Final = "a-token-of-the-cases"
WINDOW: Final = 2


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def short(stack: Stack, worker: Process) -> Process:
    """A bridge with a token whose callers have two seconds to answer."""
    return await stack.bridge(MCP_TASKS_ANSWER_WINDOW_SECONDS=str(WINDOW), MCP_TASKS_BEARER_TOKEN=TOKEN)


@pytest_asyncio.fixture(loop_scope="session")
async def hurried(short: Process) -> AsyncIterator[McpClient]:
    """A client of that bridge, without the Tasks extension."""
    async with McpClient(short.url, FORMS, token=TOKEN) as client:
        yield client


async def asked(client: McpClient, tool: str = "ask_named", **arguments: Any) -> dict[str, Any]:
    """The first question of a call."""
    result = (await client.call(tool, arguments)).result
    assert result.keys() == {"resultType", "inputRequests", "requestState"}, result
    assert result["resultType"] == "input_required"
    return result


def refused(reply: Reply) -> bool:
    """Whether a retry was refused, without a word about why."""
    return (reply.status, reply.code) == (400, -32602) and "workflow" not in json.dumps(reply.message)


async def runs(engine: Client, tool: str, label: str) -> list[Any]:
    """The runs of `tool` whose argument `label` is this one."""
    found = []
    since = datetime.now(UTC) - timedelta(minutes=1)
    async for run in engine.list_workflows(f"WorkflowType = '{tool}' AND StartTime > '{since.isoformat()}'"):
        history = await engine.get_workflow_handle(run.id).fetch_history()
        payloads = history.events[0].workflow_execution_started_event_attributes.input.payloads
        if value_of(payloads[0]).get("label") == label:
            found.append(run)
    return found


# Rounds


async def test_each_round_is_one_more_question_of_the_same_run(plain: McpClient, engine: Client) -> None:
    label = unique("rounds")
    first = await asked(plain, label=label)
    assert list(first["inputRequests"]) == ["name"]
    request = first["inputRequests"]["name"]
    assert request.keys() == {"method", "params"} and request["method"] == "elicitation/create"
    second = (
        await plain.call(
            "ask_named", {"label": label}, state=first["requestState"], responses={"name": accept(text="Ada")}
        )
    ).result
    assert list(second["inputRequests"]) == ["colour"] and second["requestState"] != first["requestState"]
    last = await plain.call(
        "ask_named", {"label": label}, state=second["requestState"], responses={"colour": accept(text="blue")}
    )
    assert last.result["structuredContent"] == {"name": "Ada", "colour": "blue"}
    assert last.result["resultType"] == "complete"
    assert await plain.count(label) == 1

    async def listed() -> list[Any] | None:
        return await runs(engine, "ask_named", label)

    assert len(await eventually(listed, what="the run in the list")) == 1


@pytest.mark.parametrize("n", [1, 5])
async def test_as_many_rounds_as_there_are_questions(plain: McpClient, n: int) -> None:
    result = await asked(plain, "ask", n=n)
    for number in range(n):
        (key,) = result["inputRequests"]
        reply = await plain.call(
            "ask", {"n": n}, state=result["requestState"], responses={key: accept(text=f"answer {number}")}
        )
        result = reply.result
    assert result["structuredContent"]["answers"] == [[f"Question {i}", f"answer {i}"] for i in range(n)]


async def test_parallel_questions_may_be_answered_in_parts(plain: McpClient) -> None:
    arguments = {"n": 3, "mode": "parallel"}
    first = await asked(plain, "ask", **arguments)
    one, two, three = first["inputRequests"]
    partly = (await plain.call("ask", arguments, state=first["requestState"], responses={two: accept(text="2")})).result
    assert partly["inputRequests"] == {key: first["inputRequests"][key] for key in (one, three)}
    responses = {
        three: accept(text="3"),
        one: accept(text="1"),
        two: accept(text="late"),
        "junk": {"action": "decline"},
    }
    last = await plain.call("ask", arguments, state=partly["requestState"], responses=responses)
    assert [answer for _, answer in last.result["structuredContent"]["answers"]] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "responses", [None, {}, {"unknown": accept(x=1)}, {"": {"action": "cancel"}}, {"Name": accept(text="x")}]
)
async def test_a_retry_without_the_needed_answer_is_asked_again(
    plain: McpClient, responses: dict[str, Any] | None
) -> None:
    first = await asked(plain, label="")
    again = (await plain.call("ask_named", {"label": ""}, state=first["requestState"], responses=responses)).result
    assert (again["resultType"], again["inputRequests"]) == ("input_required", first["inputRequests"])
    last = await plain.call(
        "ask_named", {"label": ""}, state=again["requestState"], responses={"name": accept(text="Ada")}
    )
    assert list(last.result["inputRequests"]) == ["colour"]


@pytest.mark.parametrize(
    "response",
    [
        None,
        5,
        [],
        {},
        {"action": "maybe"},
        {"action": "accept"},
        accept(),
        accept(text=5),
        accept(text="x", more=1),
        {"action": "accept", "content": None},
    ],
    ids=str,
)
async def test_a_malformed_answer_is_refused_and_the_question_stays(plain: McpClient, response: Any) -> None:
    label = unique("malformed")
    first = await asked(plain, label=label)
    bad = await plain.call("ask_named", {"label": label}, state=first["requestState"], responses={"name": response})
    assert (bad.status, bad.code) == (400, -32602)
    assert "name" in bad.message["error"]["message"]
    assert (await plain.call("ask_named", {"label": label}, responses={"name": response})).code in {None, -32602}
    good = await plain.call(
        "ask_named", {"label": label}, state=first["requestState"], responses={"name": accept(text="Ada")}
    )
    assert list(good.result["inputRequests"]) == ["colour"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_declining_ends_the_call_as_the_tool_wants_it(plain: McpClient, action: str) -> None:
    first = await asked(plain, label="")
    last = await plain.call(
        "ask_named", {"label": ""}, state=first["requestState"], responses={"name": {"action": action}}
    )
    assert (last.result["resultType"], last.result["isError"]) == ("complete", True)


async def test_any_replica_takes_the_retry(plain: McpClient, stack: Stack, hurried: McpClient) -> None:
    first = await asked(plain, label="")
    retry = await hurried.call(
        "ask_named", {"label": ""}, state=first["requestState"], responses={"name": accept(text="Ada")}
    )
    assert list(retry.result["inputRequests"]) == ["colour"]


# States


def tampered(state: str) -> list[str]:
    """States that nobody was given."""
    middle = len(state) // 2
    other = "A" if state[middle] != "A" else "B"
    return [
        state + "-TAMPERED",
        state[:-2],
        state[:middle] + other + state[middle + 1 :],
        state[1:],
        state.swapcase(),
        "",
        "x",
        "é",
        "null",
        base64.b64encode(b'{"task": "task-1"}').decode(),
        '{"task": "task-1"}',
    ]


async def test_a_state_that_was_tampered_with_is_refused_and_nothing_is_done(plain: McpClient) -> None:
    label = unique("tampered")
    first = await asked(plain, label=label)
    for state in tampered(first["requestState"]):
        retry = await plain.call("ask_named", {"label": label}, state=state, responses={"name": accept(text="Eve")})
        assert refused(retry), state
    good = await plain.call(
        "ask_named", {"label": label}, state=first["requestState"], responses={"name": accept(text="Ada")}
    )
    last = await plain.call(
        "ask_named", {"label": label}, state=good.result["requestState"], responses={"colour": accept(text="blue")}
    )
    assert last.result["structuredContent"]["name"] == "Ada"
    assert await plain.count(label) == 1


async def test_a_state_of_another_call_is_refused_and_nothing_is_done(plain: McpClient) -> None:
    label = unique("foreign")
    first = await asked(plain, label=label)
    answers = {"name": accept(text="Eve"), "colour": accept(text="red")}
    foreign: list[tuple[str, dict[str, Any]]] = [
        ("ask_named", {"label": "another"}),
        ("ask_named", {}),
        ("ask_named", {"label": label, "more": 1}),
        ("ask_first", {"label": label}),
        ("ask", {"n": 1}),
        ("echo", {"x": 1}),
        ("echo_task", {"x": 1}),
        ("nope", {}),
    ]
    for tool, arguments in foreign:
        assert refused(await plain.call(tool, arguments, state=first["requestState"], responses=answers)), tool
    state = first["requestState"]
    reply = await plain.request("tasks/update", {"taskId": state, "inputResponses": answers}, capabilities=FULL)
    assert refused(reply)
    assert await plain.count(label) == 0
    again = (await plain.call("ask_named", {"label": label}, state=state)).result
    assert list(again["inputRequests"]) == ["name"]


async def test_a_state_used_again_never_acts_again_and_is_answered_with_where_the_run_stands(plain: McpClient) -> None:
    label = unique("repeated")
    first = await asked(plain, label=label)

    async def retry(state: str, **responses: Any) -> dict[str, Any]:
        return (await plain.call("ask_named", {"label": label}, state=state, responses=responses)).result

    second = await retry(first["requestState"], name=accept(text="Ada"))
    for _ in range(3):
        repeated = await retry(first["requestState"], name=accept(text="Eve"))
        assert repeated["inputRequests"] == second["inputRequests"]
    last = await retry(second["requestState"], colour=accept(text="blue"))
    for state in (first["requestState"], second["requestState"]):
        repeated = await retry(state, name=accept(text="Eve"), colour=accept(text="red"))
        assert repeated == last
    assert last["structuredContent"] == {"name": "Ada", "colour": "blue"}
    assert await plain.count(label) == 1


async def test_retries_at_one_time_are_answered_alike_and_act_once(plain: McpClient) -> None:
    label = unique("together")
    first = await asked(plain, label=label)
    replies = await asyncio.gather(
        *(
            plain.call(
                "ask_named",
                {"label": label},
                state=first["requestState"],
                responses={"name": accept(text=f"name {number}")},
            )
            for number in range(8)
        )
    )
    assert all(list(reply.result["inputRequests"]) == ["colour"] for reply in replies)
    last = await plain.call(
        "ask_named",
        {"label": label},
        state=replies[0].result["requestState"],
        responses={"colour": accept(text="blue")},
    )
    assert last.result["structuredContent"]["name"].startswith("name ")
    assert await plain.count(label) == 1


async def test_answers_without_a_state_are_offered_to_the_questions_of_their_name(plain: McpClient) -> None:
    label = unique("offered")
    both = {"name": accept(text="Ada"), "colour": accept(text="blue"), "junk": {"action": "decline"}}
    done = (await plain.call("ask_named", {"label": label}, responses=both)).result
    assert done["structuredContent"] == {"name": "Ada", "colour": "blue"}
    later = (await plain.call("ask_named", {"label": label}, responses={"colour": accept(text="red")})).result
    assert list(later["inputRequests"]) == ["name"]
    last = await plain.call(
        "ask_named", {"label": label}, state=later["requestState"], responses={"name": accept(text="Eve")}
    )
    assert last.result["structuredContent"] == {"name": "Eve", "colour": "red"}


@pytest.mark.parametrize("response", [{"action": "accept"}, accept(), accept(text=5), {"roots": []}], ids=str)
async def test_an_offered_answer_that_does_not_fit_is_as_good_as_none(plain: McpClient, response: Any) -> None:
    result = (await plain.call("ask_named", {"label": ""}, responses={"name": response})).result
    assert list(result["inputRequests"]) == ["name"]


# Capabilities


async def test_a_retry_that_may_not_see_the_next_question_is_told_so(plain: McpClient) -> None:
    first = await asked(plain, label="")
    lacking: list[dict[str, Any]] = [{}, {"elicitation": {"url": {}}}]
    for capabilities in lacking:
        retry = await plain.call(
            "ask_named",
            {"label": ""},
            state=first["requestState"],
            responses={"name": accept(text="Ada")},
            capabilities=capabilities,
        )
        assert (retry.status, retry.code) == (400, -32021)
        assert retry.message["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}
    again = (await plain.call("ask_named", {"label": ""}, state=first["requestState"])).result
    assert list(again["inputRequests"]) == ["name"]


async def test_another_kind_of_question_goes_the_same_way(bridge: Process) -> None:
    async with McpClient(bridge.url, {"sampling": {}}) as client:
        first = await asked(client, "sampler", x="hello")
        ((key, request),) = first["inputRequests"].items()
        assert request["method"] == "sampling/createMessage" and request["params"]["maxTokens"] == 10
        said = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
        last = await client.call("sampler", {"x": "hello"}, state=first["requestState"], responses={key: said})
        assert last.result["structuredContent"] == said


# Before a handle


async def test_a_question_before_the_handle_takes_rounds_and_then_a_task(client: McpClient) -> None:
    label = unique("before")
    first = await asked(client, "ask_first", label=label)
    again = (await client.call("ask_first", {"label": label}, state=first["requestState"], responses={})).result
    assert again["inputRequests"] == first["inputRequests"]
    created = await client.call(
        "ask_first", {"label": label}, state=again["requestState"], responses={"name": accept(text="Ada")}
    )
    assert created.result["resultType"] == "task"
    repeated = await client.call(
        "ask_first", {"label": label}, state=first["requestState"], responses={"name": accept(text="Eve")}
    )
    assert repeated.result["taskId"] == created.result["taskId"]
    (key,) = await client.parked(created.result["taskId"])
    await client.update(created.result["taskId"], {key: accept(text="blue")})
    task = await client.finished(created.result["taskId"])
    assert task["result"]["structuredContent"] == {"name": "Ada", "colour": "blue"}
    assert await client.count(label) == 1


async def test_an_answer_offered_with_the_call_saves_the_round(client: McpClient) -> None:
    created = await client.call("ask_first", {"label": ""}, responses={"name": accept(text="Ada")})
    assert created.result["resultType"] == "task"
    await client.cancel(created.result["taskId"])


# Nobody comes back


@pytest.mark.parametrize("tool", ["ask_named", "ask_first"])
@pytest.mark.parametrize("rounds", [1, 2])
async def test_an_abandoned_question_closes_its_run_unwound(
    hurried: McpClient, engine: Client, tool: str, rounds: int
) -> None:
    label = unique("abandoned")
    capabilities = FORMS if rounds == 2 or tool == "ask_named" else FULL
    result = (await hurried.call(tool, {"label": label}, capabilities=capabilities)).result
    if rounds == 2:
        await asyncio.sleep(WINDOW * 0.6)  # each round has a window of its own
        retry = await hurried.call(
            tool, {"label": label}, state=result["requestState"], responses={"name": accept(text="Ada")}
        )
        assert list(retry.result["inputRequests"]) == ["colour"]
        await asyncio.sleep(WINDOW * 0.6)
        retry = await hurried.call(tool, {"label": label}, state=retry.result["requestState"])
        result = retry.result
        assert list(result["inputRequests"]) == ["colour"]

    async def closed() -> list[Any] | None:
        found = await runs(engine, tool, label)
        return found if found and all(run.close_time for run in found) else None

    (run,) = await eventually(closed, what="the run to close", within=20)
    assert run.status is WorkflowExecutionStatus.FAILED
    if rounds == 1 or tool == "ask_named":
        assert await hurried.count(f"{label}-unwound") == 1
    late = await hurried.call(
        tool, {"label": label}, state=result["requestState"], responses={"name": accept(text="late")}
    )
    assert late.code in {-32602, -32603}
    assert await hurried.count(label) == rounds - 1


# Long waits and disconnects


async def test_a_long_wait_becomes_a_stream_of_growing_progress(plain: McpClient) -> None:
    params = {"name": "slow", "arguments": {"seconds": 3.7, "steps": 1}}
    reply = await plain.request("tools/call", params, meta={"progressToken": "p-1"})
    assert reply.result["structuredContent"] == {"steps": 1}
    assert len(reply.notifications) > 1
    reported = []
    for notification in reply.notifications:
        assert notification["method"] == "notifications/progress" and "id" not in notification
        assert notification["params"]["progressToken"] == "p-1"
        reported.append(notification["params"]["progress"])
    assert reported == sorted(set(reported))


async def test_without_a_token_there_is_no_progress_and_no_stream(plain: McpClient) -> None:
    params = {"name": "slow", "arguments": {"seconds": 0.5}}
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            plain.url, json=plain.body("tools/call", params), headers=plain.headers("tools/call", params)
        ) as response,
    ):
        assert response.content_type == "application/json"
        assert (await response.json())["result"]["structuredContent"] == {"steps": 1}


async def test_progress_before_a_question_and_nothing_after_it(plain: McpClient) -> None:
    params = {"name": "delayed_ask", "arguments": {"seconds": 1.7}}
    reply = await plain.request("tools/call", params, meta={"progressToken": 7})
    assert reply.result["resultType"] == "input_required"
    assert reply.notifications and all(n["params"]["progressToken"] == 7 for n in reply.notifications)


@pytest.mark.full
async def test_a_silent_wait_is_kept_alive(plain: McpClient) -> None:
    params = {"name": "slow", "arguments": {"seconds": 20}}
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            plain.url, json=plain.body("tools/call", params), headers=plain.headers("tools/call", params)
        ) as response,
    ):
        text = await response.text()
    assert response.content_type == "text/event-stream" and response.headers["X-Accel-Buffering"] == "no"
    lines = text.split("\n")
    assert ":" in lines and sum(line.startswith("data: ") for line in lines) == 1


async def started_and_dropped(client: McpClient, tool: str, arguments: dict[str, Any], **members: Any) -> None:
    """Send a call and leave as soon as the run has a side effect or an activity."""
    params = {"name": tool, "arguments": arguments} | members
    calling = asyncio.create_task(client.request("tools/call", params, capabilities=FORMS))
    await asyncio.sleep(0)
    label = f"{arguments['label']}"

    async def begun() -> bool:
        return await client.count(label) > 0

    await eventually(begun, what="the first step")
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)


async def test_leaving_before_the_answer_cancels_the_run(plain: McpClient, engine: Client) -> None:
    label = unique("left")
    await started_and_dropped(plain, "slow", {"seconds": 60, "steps": 60, "label": label})

    async def closed() -> Any:
        (run,) = await runs(engine, "slow", label) or (None,)
        return run if run and run.close_time else None

    assert (await eventually(closed, what="the run to close")).status is WorkflowExecutionStatus.CANCELED
    assert await plain.count(label) < 5


async def test_leaving_a_retry_before_its_answer_cancels_the_run(plain: McpClient, engine: Client) -> None:
    label = unique("left-retry")
    first = await asked(plain, "ask", n=2, label=label)
    (key,) = first["inputRequests"]
    state = {"requestState": first["requestState"], "inputResponses": {}}
    params = {"name": "ask", "arguments": {"n": 2, "label": label}} | state
    assert (await plain.request("tools/call", params)).result["resultType"] == "input_required"
    slow = await asked(plain, "ask_then_work", seconds=4)
    (key,) = slow["inputRequests"]
    retry = asyncio.create_task(
        plain.call("ask_then_work", {"seconds": 4}, state=slow["requestState"], responses={key: accept(text=label)})
    )

    async def answered() -> list[Any] | None:
        return [run async for run in engine.list_workflows("WorkflowType = 'ask_then_work'") if not run.close_time]

    (run,) = await eventually(answered, what="the run")

    async def working() -> bool:
        return bool((await engine.get_workflow_handle(run.id).describe()).raw_description.pending_activities)

    await eventually(working, what="the step after the answer")
    retry.cancel()
    await asyncio.gather(retry, return_exceptions=True)

    async def closed() -> Any:
        description = await engine.get_workflow_handle(run.id).describe()
        return description.status if description.close_time else None

    assert await eventually(closed, what="the run to close") is WorkflowExecutionStatus.CANCELED


async def test_leaving_after_the_handle_cancels_nothing(bridge: Process, client: McpClient) -> None:
    label = unique("kept")
    async with McpClient(bridge.url) as leaving:
        task_id = await leaving.start("slow", {"seconds": 0.5, "label": label})
    assert (await client.finished(task_id))["status"] == "completed"
    assert await client.count(label) == 1


async def test_leaving_after_a_question_cancels_nothing(bridge: Process, plain: McpClient) -> None:
    async with McpClient(bridge.url, FORMS) as leaving:
        first = await asked(leaving, label="")
    retry = await plain.call(
        "ask_named", {"label": ""}, state=first["requestState"], responses={"name": accept(text="Ada")}
    )
    assert list(retry.result["inputRequests"]) == ["colour"]


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.full)])
async def test_a_client_that_leaves_at_any_moment_leaves_no_run_behind(
    bridge: Process, client: McpClient, engine: Client, count: int
) -> None:
    label = unique("orphans")

    async def leave(number: int) -> None:
        async with McpClient(bridge.url, {"extensions": {TASKS: {}}} if number % 2 else {}) as leaving:
            # A handle that was on its way keeps its run, for the lifetime of the tool
            call = asyncio.create_task(leaving.call("bounded", {"seconds": 30, "label": label}))
            await asyncio.sleep(number * 0.05 / count)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    await asyncio.gather(*(leave(number) for number in range(count)))
    await client.alive()

    async def all_closed() -> bool:
        return all(run.close_time for run in await runs(engine, "bounded", label))

    await eventually(all_closed, what="every run to close", within=20)


# Tokens


async def test_without_the_token_no_method_does_anything(hurried: McpClient, short: Process) -> None:
    label = unique("no-token")
    task_id = str((await hurried.call("ask", {"n": 1}, capabilities=FULL)).result["taskId"])
    hurried.capabilities = FULL
    (key,) = await hurried.parked(task_id)
    requests: list[tuple[str, dict[str, Any]]] = [
        ("server/discover", {}),
        ("tools/list", {}),
        ("tools/call", {"name": "slow", "arguments": {"seconds": 0, "label": label}}),
        ("tasks/get", {"taskId": task_id}),
        ("tasks/update", {"taskId": task_id, "inputResponses": {key: accept(text="no")}}),
        ("tasks/cancel", {"taskId": task_id}),
        ("nope", {}),
    ]
    for token in (None, "another-token-of-the-cases", TOKEN[:-1], TOKEN.upper()):
        async with McpClient(short.url, token=token) as stranger:
            for method, params in requests:
                reply = await stranger.request(method, params)
                assert reply.status == 401 and reply.message.keys() == {"text"}
    await hurried.update(task_id, {key: accept(text="yes")})
    assert (await hurried.finished(task_id))["result"]["structuredContent"]["answers"] == [["Question 0", "yes"]]
    assert await hurried.count(label) == 0
