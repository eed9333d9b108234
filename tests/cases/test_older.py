"""Clients of 2025-11-25 and 2025-06-18: the same runs, any replica, and nothing that those revisions cannot express."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus

from tests.cases.client import McpClient
from tests.cases.older_client import OlderClient, first_request
from tests.cases.stack import Process, Stack
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

WINDOW: Final = 2
BOTH: Final = ("2025-11-25", "2025-06-18")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def replicas(stack: Stack, bridge: Process) -> list[str]:
    """Two bridges of one deployment."""
    return [bridge.url, (await stack.bridge()).url]


@pytest_asyncio.fixture(loop_scope="session", params=BOTH)
async def old(request: pytest.FixtureRequest, replicas: list[str]) -> AsyncIterator[OlderClient]:
    """A client of each older revision, whose messages go to the two replicas in turn."""
    async with OlderClient(replicas, request.param) as client:
        yield client


async def runs(engine: Client, arguments: dict[str, Any]) -> list[WorkflowExecutionStatus]:
    """The states of all runs that were started with these arguments."""
    digest = hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()
    found = []
    async for run in engine.list_workflows():
        memo = await run.memo_value("mcp_task", {})
        if memo.get("argumentsDigest") == digest:
            assert run.status is not None
            found.append(run.status)
    return found


async def ended(engine: Client, arguments: dict[str, Any], status: WorkflowExecutionStatus) -> None:
    async def only() -> bool:
        return await runs(engine, arguments) == [status]

    await eventually(only, what=f"one run that is {status.name}")


def text_of(message: dict[str, Any]) -> str:
    return str(message["result"]["content"][0]["text"])


async def test_a_call_returns_its_result_and_nothing_newer(old: OlderClient) -> None:
    result = (await old.call("echo", {"x": 1}))["result"]
    assert result == {"content": [{"type": "text", "text": '{"x": 1}'}], "structuredContent": {"x": 1}}


async def test_a_list_has_no_caching_hints(old: OlderClient) -> None:
    result = (await old.request("tools/list"))["result"]
    assert result.keys() == {"tools"}
    assert all("$schema" not in tool["inputSchema"] for tool in result["tools"])


async def test_progress_comes_on_the_call_s_stream(old: OlderClient) -> None:
    async with old.calling("slow", {"seconds": 4, "steps": 1, "label": unique("p")}, progressToken="p") as call:
        messages = [message async for message in call.messages()]
    assert messages[-1]["result"]["structuredContent"] == {"steps": 1}
    assert {message["params"]["progressToken"] for message in messages[:-1]} == {"p"}


async def test_several_questions_are_asked_and_answered_through_any_replica(old: OlderClient, engine: Client) -> None:
    arguments = {"label": unique("old")}
    answers = iter(["Ada", "blue"])
    message = await old.call(
        "ask_named", arguments, lambda _: {"result": {"action": "accept", "content": {"text": next(answers)}}}
    )
    assert message["result"]["structuredContent"] == {"name": "Ada", "colour": "blue"}
    await ended(engine, arguments, WorkflowExecutionStatus.COMPLETED)


async def test_questions_asked_at_once_are_each_sent_once(old: OlderClient) -> None:
    asked = list[str]()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["params"]["message"])
        return {"result": {"action": "accept", "content": {"text": request["params"]["message"]}}}

    await old.call("ask", {"n": 3, "mode": "parallel", "label": unique("many")}, answer)
    assert sorted(asked) == ["Question 0", "Question 1", "Question 2"]


async def test_an_answer_needs_no_session_header(old: OlderClient) -> None:
    bare = {name: value for name, value in old.headers.items() if not name.startswith(("Mcp-", "MCP-"))}
    async with old.calling("ask", {"label": unique("bare")}) as call:
        request = await first_request(call)
        members = {"result": {"action": "accept", "content": {"text": "yes"}}}
        assert await old.respond(request, members, bare) == 202
        [message] = [message async for message in call.messages()]
    assert message["result"]["structuredContent"]["answers"] == [["Question 0", "yes"]]


@pytest.mark.parametrize(
    "members",
    [{"result": {"action": "cancel"}}, {"error": {"code": -1, "message": "the user closed the window"}}],
    ids=["cancel", "error"],
)
async def test_a_person_who_will_not_answer_cancels_the_question(old: OlderClient, members: dict[str, Any]) -> None:
    message = await old.call("ask", {"label": unique("no")}, lambda _: members)
    assert message["result"]["isError"] is True
    assert "cancel" in text_of(message)


async def test_an_answer_that_does_not_fit_is_refused_and_counts_as_cancel(old: OlderClient) -> None:
    async with old.calling("ask", {"label": unique("unfit")}) as call:
        request = await first_request(call)
        assert await old.respond(request, {"result": {"action": "accept", "content": {"text": 7}}}) == 400
        [message] = [message async for message in call.messages()]
    assert message["result"]["isError"] is True


async def test_a_second_answer_changes_nothing(old: OlderClient) -> None:
    async with old.calling("ask", {"n": 1, "label": unique("twice")}) as call:
        request = await first_request(call)
        for text in ("first", "second"):
            members = {"result": {"action": "accept", "content": {"text": text}}}
            assert await old.respond(request, members) == 202
        [message] = [message async for message in call.messages()]
    assert message["result"]["structuredContent"]["answers"] == [["Question 0", "first"]]


async def test_a_cancel_ends_the_run_and_the_call(old: OlderClient, engine: Client) -> None:
    arguments = {"seconds": 60, "label": unique("cancel")}
    async with old.calling("slow", arguments, progressToken=1) as call:
        for _ in range(2):  # a second one changes nothing
            assert await old.notify("notifications/cancelled", {"requestId": call.id, "reason": "no"}) == 202
        messages = [message async for message in call.messages()]
    assert messages[-1]["error"]["message"] == "The call was cancelled"
    await ended(engine, arguments, WorkflowExecutionStatus.CANCELED)


async def test_a_cancel_reaches_no_call_of_another_session(replicas: list[str]) -> None:
    async with (
        OlderClient(replicas) as caller,
        OlderClient(replicas) as stranger,
        caller.calling("slow", {"seconds": 1, "label": unique("other")}, progressToken=1) as call,
    ):
        assert await stranger.notify("notifications/cancelled", {"requestId": call.id}) == 202
        messages = [message async for message in call.messages()]
    assert messages[-1]["result"]["structuredContent"] == {"steps": 1}


async def test_a_client_that_leaves_has_not_cancelled_its_call(old: OlderClient, stack: Stack, engine: Client) -> None:
    arguments = {"seconds": 1, "label": unique("left")}
    async with old.calling("slow", arguments, progressToken=1):
        pass  # the stream is open, so the run has begun
    await ended(engine, arguments, WorkflowExecutionStatus.COMPLETED)
    assert stack.side_effects(str(arguments["label"])) == 1


async def test_an_abandoned_question_ends_the_run_by_itself(stack: Stack, worker: Process, engine: Client) -> None:
    hurried = await stack.bridge(MCP_TASKS_ANSWER_WINDOW_SECONDS=str(WINDOW))
    arguments = {"label": unique("abandoned")}
    async with OlderClient([hurried.url]) as client, client.calling("ask_named", arguments) as call:
        await first_request(call)
    await ended(engine, arguments, WorkflowExecutionStatus.FAILED)


async def test_a_reused_request_id_is_a_call_of_its_own(replicas: list[str], engine: Client) -> None:
    arguments = {"seconds": 0, "label": unique("reused")}
    async with OlderClient(replicas) as client:
        params = {"name": "slow", "arguments": arguments}
        for _ in range(2):
            async with client.send({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}) as response:
                assert "result" in await response.text()

    async def two() -> bool:
        return await runs(engine, arguments) == [WorkflowExecutionStatus.COMPLETED] * 2

    await eventually(two, what="two runs")


async def test_a_tool_that_only_makes_sense_as_a_task_is_a_tool_error(old: OlderClient) -> None:
    result = (await old.call("handle_only", {"seconds": 0}))["result"]
    assert result["isError"] is True
    assert "io.modelcontextprotocol/tasks" in result["content"][0]["text"]


async def test_a_client_that_cannot_be_asked_is_told_before_anything_starts(
    replicas: list[str], engine: Client
) -> None:
    arguments = {"label": unique("mute")}
    async with OlderClient(replicas, capabilities={}) as client:
        result = (await client.call("ask_named", arguments))["result"]
    assert result["isError"] is True
    assert "elicitation" in result["content"][0]["text"]
    assert await runs(engine, arguments) == []


async def test_a_tasks_capability_of_that_time_is_not_served(old: OlderClient) -> None:
    assert "tasks" not in old.welcome["capabilities"]
    body = {"name": "echo", "arguments": {"x": 1}, "task": {"ttl": 1000}}
    assert (await old.request("tools/call", body))["result"]["structuredContent"] == {"x": 1}
    assert (await old.request("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601


async def test_the_oldest_form_has_titled_options_and_no_defaults(replicas: list[str]) -> None:
    seen = list[dict[str, Any]]()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        seen.append(request["params"])
        return {"result": {"action": "accept", "content": {"text": "x"}}}

    async with OlderClient(replicas, "2025-06-18") as client:
        await client.call("ask", {"label": unique("form")}, answer)
    assert seen[0].keys() == {"message", "requestedSchema"}


async def test_a_question_that_the_oldest_form_cannot_put_is_a_tool_error(replicas: list[str], engine: Client) -> None:
    arguments = {"x": unique("list")}
    async with OlderClient(replicas, "2025-06-18") as client:
        result = (await client.call("profile", arguments))["result"]
    assert result["isError"] is True
    assert "'tags'" in result["content"][0]["text"]

    async def over() -> bool:
        return WorkflowExecutionStatus.RUNNING not in await runs(engine, arguments)

    await eventually(over, what="the end of a run that nobody can answer")


async def test_sampling_is_asked_and_answered(replicas: list[str]) -> None:
    reply = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m"}
    async with OlderClient(replicas, capabilities={"sampling": {}}) as client:
        message = await client.call("sampler", {"x": "say hello"}, lambda _: {"result": reply})
    assert "hello" in text_of(message)


async def test_a_refusal_to_sample_ends_the_call(replicas: list[str]) -> None:
    async with OlderClient(replicas, capabilities={"sampling": {}}) as client:
        message = await client.call("sampler", {"x": "no"}, lambda _: {"error": {"code": -1, "message": "no"}})
    assert message["error"]["message"] == "The call was cancelled"


async def test_a_session_outlives_every_bridge(stack: Stack, worker: Process) -> None:
    first = await stack.bridge()
    async with OlderClient([first.url]) as client:
        await first.stop()
        client.talk_to([(await stack.bridge()).url])
        assert (await client.call("echo", {"x": 2}))["result"]["structuredContent"] == {"x": 2}


async def test_old_and_new_clients_share_one_endpoint(old: OlderClient, client: McpClient) -> None:
    replies, messages = await asyncio.gather(
        asyncio.gather(*(client.call("echo", {"x": number}) for number in range(5))),
        asyncio.gather(*(old.call("echo", {"x": number}) for number in range(5))),
    )
    assert [reply.result["structuredContent"]["x"] for reply in replies] == [*range(5)]
    assert [message["result"]["structuredContent"]["x"] for message in messages] == [*range(5)]
