"""One run, several calls: what was settled at its start holds for whoever comes back to it, at whichever replica, and
also when a bridge stops while somebody waits.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus

from bridge.call import CREATION_KEY
from tests.cases.client import FORMS, FULL, TASKS, McpClient, accept
from tests.cases.older_client import OlderClient, first_request
from tests.cases.stack import Process, Stack
from tests.support import eventually, unique
from workflows.kit.contract import UPDATE_SIGNAL, UpdateSignal

pytestmark = pytest.mark.asyncio(loop_scope="session")

WINDOW = 2
OLD_KEY = "o" * 32
NEW_KEY = "n" * 32


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def other(stack: Stack, worker: Process) -> Process:
    """A second bridge of the deployment."""
    return await stack.bridge()


@pytest_asyncio.fixture(loop_scope="session")
async def replica(other: Process) -> AsyncIterator[McpClient]:
    """A client of the second bridge."""
    async with McpClient(other.url) as client:
        yield client


# How the outcome is delivered


async def test_a_task_is_not_gone_on_with_by_a_client_that_takes_none(client: McpClient) -> None:
    arguments = {"label": unique("narrower")}
    first = (await client.call("ask_first", arguments)).result
    answer = {"name": accept(text="Ada")}
    refused = await client.call(
        "ask_first", arguments, state=first["requestState"], responses=answer, capabilities=FORMS
    )
    assert (refused.status, refused.code) == (400, -32021)
    assert TASKS in refused.message["error"]["data"]["requiredCapabilities"]["extensions"]
    again = (await client.call("ask_first", arguments, state=first["requestState"])).result
    assert list(again["inputRequests"]) == ["name"], "nothing was delivered"
    await client.call("ask_first", arguments, state=first["requestState"], responses={"name": {"action": "cancel"}})


async def test_a_call_that_waits_is_not_made_a_task_by_a_client_that_takes_one_later(client: McpClient) -> None:
    arguments = {"label": unique("wider")}
    result = (await client.call("ask_first", arguments, capabilities=FORMS)).result
    for key, text in (("name", "Ada"), ("colour", "blue")):
        assert list(result["inputRequests"]) == [key]
        reply = await client.call(
            "ask_first", arguments, state=result["requestState"], responses={key: accept(text=text)}, capabilities=FULL
        )
        result = reply.result
    assert result["structuredContent"] == {"name": "Ada", "colour": "blue"}


async def test_a_creation_key_of_a_call_that_waits_leads_to_its_result_and_to_no_task(
    client: McpClient, replica: McpClient
) -> None:
    meta = {CREATION_KEY: unique("key")}
    arguments = {"n": 1, "label": unique("waits")}
    asked = (await client.call("ask", arguments, capabilities=FORMS, meta=meta)).result
    repeated = (await replica.call("ask", arguments, meta=meta)).result
    assert repeated["inputRequests"] == asked["inputRequests"]


async def test_a_key_on_a_retry_does_not_name_the_run_of_a_call_that_had_none(client: McpClient) -> None:
    arguments = {"label": unique("unnamed")}
    first = (await client.call("ask_named", arguments, capabilities=FORMS)).result
    meta = {CREATION_KEY: unique("late")}
    second = (
        await client.call(
            "ask_named",
            arguments,
            state=first["requestState"],
            responses={"name": accept(text="Ada")},
            capabilities=FORMS,
            meta=meta,
        )
    ).result
    assert list(second["inputRequests"]) == ["colour"]
    new = (await client.call("ask_named", arguments, capabilities=FORMS, meta=meta)).result
    assert list(new["inputRequests"]) == ["name"], "a call of its own"


# A bridge that stops


async def test_a_caller_that_waits_is_told_to_come_back_and_its_answer_is_not_lost(
    stack: Stack, worker: Process, replica: McpClient
) -> None:
    stopping = await stack.bridge()
    arguments = {"seconds": 2}
    async with McpClient(stopping.url, FORMS) as caller:
        first = (await caller.call("ask_then_work", arguments)).result
        (key,) = first["inputRequests"]
        retry = asyncio.create_task(
            caller.call("ask_then_work", arguments, state=first["requestState"], responses={key: accept(text="yes")})
        )

        await asyncio.sleep(0.5)  # the answer is delivered, and the work of two seconds has begun
        assert await stopping.stop() == 0
        told = (await retry).result
    assert told.keys() == {"resultType", "requestState"}
    assert told["resultType"] == "input_required"
    last = await replica.call("ask_then_work", arguments, state=told["requestState"], capabilities=FORMS)
    assert last.result["resultType"] == "complete"
    assert last.result.get("isError") is not True


async def test_a_call_that_waits_for_its_first_answer_is_gone_on_with_elsewhere(
    stack: Stack, worker: Process, replica: McpClient
) -> None:
    stopping = await stack.bridge()
    label = unique("moved")
    arguments = {"seconds": 2, "label": label}
    async with McpClient(stopping.url, FORMS) as caller:
        call = asyncio.create_task(caller.call("slow", arguments))
        await asyncio.sleep(0.5)
        assert await stopping.stop() == 0
        told = (await call).result
    assert told.keys() == {"resultType", "requestState"}
    last = await replica.call("slow", arguments, state=told["requestState"], capabilities=FORMS)
    assert last.result["structuredContent"] == {"steps": 1}
    assert stack.side_effects(label) == 1


async def test_a_replay_that_leaves_ends_nothing(client: McpClient, replica: McpClient) -> None:
    arguments = {"seconds": 2}
    first = (await client.call("ask_then_work", arguments, capabilities=FORMS)).result
    (key,) = first["inputRequests"]
    retry: dict[str, Any] = {"state": first["requestState"], "responses": {key: accept(text="yes")}}
    working = asyncio.create_task(client.call("ask_then_work", arguments, capabilities=FORMS, **retry))
    await asyncio.sleep(0.5)
    replaying = asyncio.create_task(replica.call("ask_then_work", arguments, capabilities=FORMS, **retry))
    await asyncio.sleep(0.3)
    replaying.cancel()
    assert (await working).result.get("isError") is not True


# A bridge that is killed before it gave the handle


async def ends(
    engine: Client,
    tool: str,
    arguments: dict[str, Any],
    status: WorkflowExecutionStatus = WorkflowExecutionStatus.FAILED,
) -> None:
    """Fail unless the one run with these arguments ends like this; an answer window ends it as failed."""
    digest = hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()

    async def ended() -> bool:
        async for run in engine.list_workflows(f"WorkflowType = '{tool}'"):
            if (await run.memo_value("mcp_task", {})).get("argumentsDigest") == digest:
                return run.status is status
        return False

    await eventually(ended, what=f"a run that is {status.name}")


async def test_a_task_whose_bridge_is_killed_while_it_waits_for_a_quick_end_ends_by_itself(
    stack: Stack, worker: Process, engine: Client
) -> None:
    doomed = await stack.bridge(MCP_TASKS_ANSWER_WINDOW_SECONDS=str(WINDOW))
    arguments = {"end": "question", "seconds": 1.5, "label": unique("doomed")}
    async with McpClient(doomed.url) as caller:
        calling = asyncio.create_task(caller.call("quick", arguments))
        await asyncio.sleep(0.7)
        await doomed.kill()
        with pytest.raises(aiohttp.ClientError):
            await calling
    await ends(engine, "quick", arguments)


async def test_a_task_whose_handle_never_follows_its_first_question_ends_by_itself(
    stack: Stack, worker: Process, engine: Client
) -> None:
    doomed = await stack.bridge(MCP_TASKS_ANSWER_WINDOW_SECONDS=str(WINDOW))
    arguments = {"label": unique("doomed-first")}
    async with McpClient(doomed.url) as caller:
        await caller.call("ask_first", arguments)
    await doomed.kill()
    digest = hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()
    async for run in engine.list_workflows("WorkflowType = 'ask_first'"):
        if (await run.memo_value("mcp_task", {})).get("argumentsDigest") == digest:
            answer = UpdateSignal(responses={"name": accept(text="Ada")})
            await engine.get_workflow_handle(run.id).signal(UPDATE_SIGNAL, answer.to_json())
    await ends(engine, "ask_first", arguments)


async def test_a_task_whose_handle_was_given_waits_beyond_the_window(stack: Stack, worker: Process) -> None:
    hurried = await stack.bridge(MCP_TASKS_ANSWER_WINDOW_SECONDS=str(WINDOW))
    async with McpClient(hurried.url) as client:
        task_id = await client.start("hasty", {"end": "question", "label": unique("patient")})
        (key,) = await client.parked(task_id)
        await asyncio.sleep(WINDOW + 1)
        await client.update(task_id, {key: accept(text="yes")})
        assert (await client.finished(task_id))["status"] == "completed"


async def test_leaving_a_call_that_goes_on_elsewhere_cancels_it(
    stack: Stack, worker: Process, replica: McpClient, engine: Client
) -> None:
    stopping = await stack.bridge()
    arguments = {"seconds": 60, "label": unique("moved-and-left")}
    async with McpClient(stopping.url, FORMS) as caller:
        call = asyncio.create_task(caller.call("slow", arguments))
        await asyncio.sleep(0.5)
        await stopping.stop()
        told = (await call).result
    going_on = asyncio.create_task(replica.call("slow", arguments, state=told["requestState"], capabilities=FORMS))
    await asyncio.sleep(0.5)
    going_on.cancel()
    await ends(engine, "slow", arguments, WorkflowExecutionStatus.CANCELED)


# Cancels of older clients


async def test_a_cancel_at_another_replica_ends_the_call(bridge: Process, other: Process, stack: Stack) -> None:
    label = unique("elsewhere")
    async with OlderClient([bridge.url]) as client:
        async with client.calling("slow", {"seconds": 60, "label": label}, progressToken=1) as call:
            client.talk_to([other.url])
            assert await client.notify("notifications/cancelled", {"requestId": call.id}) == 202
            messages = [message async for message in call.messages()]
    assert messages[-1]["error"]["message"] == "The call was cancelled"
    assert stack.side_effects(label) == 0


async def test_a_cancel_that_overtakes_its_call_is_not_lost(bridge: Process, other: Process, stack: Stack) -> None:
    label = unique("overtaken")
    async with OlderClient([bridge.url]) as client:
        params = {"name": "slow", "arguments": {"seconds": 60, "label": label}}
        client.talk_to([other.url])
        assert await client.notify("notifications/cancelled", {"requestId": 999_001}) == 202
        client.talk_to([bridge.url])
        body = {"jsonrpc": "2.0", "id": 999_001, "method": "tools/call", "params": params}
        async with asyncio.timeout(30), client.send(body) as response:
            message = await response.json()
    assert message["error"]["message"] == "The call was cancelled"


async def test_a_cancel_of_a_finished_call_does_nothing(bridge: Process) -> None:
    async with OlderClient([bridge.url]) as client:
        async with client.calling("echo", {"x": 1}) as call:
            [message] = [message async for message in call.messages()]
        assert message["result"]["structuredContent"] == {"x": 1}
        assert await client.notify("notifications/cancelled", {"requestId": call.id}) == 202
        assert (await client.call("echo", {"x": 2}))["result"]["structuredContent"] == {"x": 2}


async def test_an_answer_that_is_too_large_counts_as_cancel(bridge: Process) -> None:
    async with OlderClient([bridge.url]) as client, client.calling("ask", {"label": unique("large")}) as call:
        request = await first_request(call)
        members = {"result": {"action": "accept", "content": {"text": "x" * 2_000_000}}}
        assert await client.respond(request, members) == 400
        [message] = [message async for message in call.messages()]
    assert message["result"]["isError"] is True


# A rotation of keys


async def test_a_creation_key_makes_one_task_while_replicas_differ_in_their_first_key(
    stack: Stack, worker: Process
) -> None:
    before = await stack.bridge(MCP_TASKS_SEALING_KEYS=f"{OLD_KEY},{NEW_KEY}")
    after = await stack.bridge(MCP_TASKS_SEALING_KEYS=f"{NEW_KEY},{OLD_KEY}")
    async with McpClient(before.url) as one, McpClient(after.url) as two:
        for number in range(4):
            meta = {CREATION_KEY: unique(f"rotation-{number}")}
            arguments = {"seconds": 3, "label": unique("rotation")}
            replies = await asyncio.gather(
                *(client.call("slow", arguments, meta=meta) for client, _ in zip(itertools.cycle((one, two)), range(4)))
            )
            ids = {reply.result["taskId"] for reply in replies}

            async def agreed(arguments: dict[str, Any] = arguments, meta: dict[str, str] = meta) -> str | None:
                found = {(await client.call("slow", arguments, meta=meta)).result["taskId"] for client in (one, two)}
                return found.pop() if len(found) == 1 else None

            task_id = await eventually(agreed, what="one task")
            assert ids == {task_id}
            assert (await one.finished(task_id))["status"] == "completed"
            assert stack.side_effects(str(arguments["label"])) == 1
