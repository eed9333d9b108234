"""Separation of duties as a client meets it: the owner of a task is not asked what somebody else has to answer.

The others answer by a signal here, as a bridge sends it for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest
import pytest_asyncio
from temporalio.client import Client

from tests.cases.client import FORMS, McpClient, accept
from tests.cases.older_client import OlderClient
from tests.cases.stack import Process, Stack
from tests.support import eventually, unique
from workflows.kit.contract import UPDATE_SIGNAL, Actor, UpdateSignal

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODULE: Final = "tests.fixtures.answerers"
QUEUE: Final = "answerers"
ANOTHER: Final = "Waiting for an answer by somebody other than the task's owner"
MANAGER: Final = "Waiting for an answer by a member of the group release-managers"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def office(stack: Stack) -> Process:
    await stack.worker(MODULE, MCP_TASKS_TASK_QUEUE=QUEUE)
    return await stack.bridge(MODULE, MCP_TASKS_TASK_QUEUE=QUEUE)


@pytest_asyncio.fixture(loop_scope="session")
async def owner(office: Process) -> AsyncIterator[McpClient]:
    """The owner of every task."""
    async with McpClient(office.url) as client:
        yield client


async def boss_answers(engine: Client, task_id: str, *groups: str) -> None:
    actor = Actor(issuer="local", subject="boss", channel="http", groups=list(groups) or None)
    signal = UpdateSignal(responses={"approval": accept(yes=True)}, actor=actor, at=datetime.now(UTC))
    await engine.get_workflow_handle(task_id).signal(UPDATE_SIGNAL, signal.to_json())


async def shows(client: McpClient, task_id: str, message: str) -> dict[str, Any]:
    async def shown() -> dict[str, Any] | None:
        task = (await client.get(task_id)).result
        return task if task.get("statusMessage") == message else None

    return await eventually(shown, what=message)


async def run_of(engine: Client, tool: str) -> str:
    """The one open run of `tool`."""

    async def open_run() -> str | None:
        query = f"WorkflowType = '{tool}' AND ExecutionStatus = 'Running'"
        found = [run.id async for run in engine.list_workflows(query)]
        return found[0] if len(found) == 1 else None

    return await eventually(open_run, what=f"a run of {tool}")


async def test_the_owner_sees_who_is_awaited_and_no_question(owner: McpClient, engine: Client) -> None:
    task_id = await owner.start("ask_another", {"label": unique("another")})
    task = await shows(owner, task_id, ANOTHER)
    assert task["status"] == "working"
    assert "inputRequests" not in task
    await boss_answers(engine, task_id)
    assert (await owner.finished(task_id))["result"]["structuredContent"] == {"yes": True, "by": "boss"}


async def test_an_answer_of_the_owners_is_refused_by_name_and_nothing_is_sent(owner: McpClient, engine: Client) -> None:
    task_id = await owner.start("ask_another", {"label": unique("another")})
    await shows(owner, task_id, ANOTHER)
    before = (await engine.get_workflow_handle(task_id).describe()).history_length
    reply = await owner.update(task_id, {"approval": accept(yes=True)})
    reason = "it has to be answered by somebody other than the task's owner"
    assert (reply.status, reply.message["error"]) == (
        400,
        {
            "code": -32602,
            "message": f"The answer to 'approval' cannot be used: {reason}",
            "data": {"key": "approval", "reason": reason},
        },
    )
    assert (await engine.get_workflow_handle(task_id).describe()).history_length == before
    await boss_answers(engine, task_id)
    await owner.finished(task_id)


async def test_the_owner_is_asked_its_own_question_alone(owner: McpClient, engine: Client) -> None:
    task_id = await owner.start("ask_both", {"label": unique("both")})
    assert list(await owner.parked(task_id)) == ["sure"]
    both = await owner.update(task_id, {"sure": accept(yes=True), "approval": accept(yes=True)})
    assert both.message["error"]["data"]["key"] == "approval"
    assert list(await owner.parked(task_id)) == ["sure"]
    assert (await owner.update(task_id, {"sure": accept(yes=True)})).result == {"resultType": "complete"}
    await shows(owner, task_id, MANAGER)
    await boss_answers(engine, task_id, "release-managers")
    result = (await owner.finished(task_id))["result"]
    assert result["structuredContent"] == {"sure": True, "approval": True}


async def test_a_caller_that_waits_is_not_asked_and_is_told_who_is(office: Process, engine: Client) -> None:
    async with McpClient(office.url, FORMS) as plain:
        call = asyncio.create_task(plain.call("ask_another", {"label": unique("waits")}, meta={"progressToken": "p"}))
        await boss_answers_once_asked(engine, "ask_another")
        reply = await call
    assert reply.result["structuredContent"] == {"yes": True, "by": "boss"}
    progress = [message["params"] for message in reply.notifications]
    assert [report["message"] for report in progress] == ["Asking", ANOTHER]
    assert progress[0]["progress"] < progress[1]["progress"] < 2


async def test_a_caller_of_an_older_revision_is_not_asked_either(office: Process, engine: Client) -> None:
    async with OlderClient([office.url]) as older:
        call = asyncio.create_task(older.call("ask_another", {"label": unique("older")}))  # fails if it is asked
        await boss_answers_once_asked(engine, "ask_another")
        message = await call
    assert message["result"]["structuredContent"] == {"yes": True, "by": "boss"}


async def boss_answers_once_asked(engine: Client, tool: str) -> None:
    """Answer the open run of `tool`, a second after it has asked, so that its caller could have been asked."""
    task_id = await run_of(engine, tool)

    async def parked() -> bool:
        return "mcp_view" in await (await engine.get_workflow_handle(task_id).describe()).memo()

    await eventually(parked, what="the question")
    await asyncio.sleep(1)
    await boss_answers(engine, task_id)
