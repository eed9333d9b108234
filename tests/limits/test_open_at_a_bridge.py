"""An owner at its limit of open tasks is refused, with nothing started; another one does not notice."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from typing import Any, Final

import pytest
import pytest_asyncio
from temporalio.client import Client

from bridge.call import CREATION_KEY
from bridge.dev_server import DevServer
from bridge.proxy_identity import ISSUER
from tests.cases.client import FORMS
from tests.cases.older_client import OlderClient
from tests.cases.stack import SEALING_KEY, Process, Programs
from tests.limits.conftest import Named
from tests.support import eventually, unique
from workflows.kit.contract import OWNER_ATTRIBUTE, Principal

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPEN_TASKS: Final = 3
LONG: Final = {"seconds": 600}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bridge(programs: Programs) -> Process:
    """With a small limit."""
    return await programs.bridge(MCP_TASKS_OPEN_TASKS_PER_OWNER=str(OPEN_TASKS))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engine(temporal: DevServer) -> Client:
    """Temporal itself."""
    return await Client.connect(temporal.address)


async def runs(engine: Client, owner: Named, more: str = "") -> int:
    """How many runs Temporal lists for an owner."""
    key = hmac.digest(SEALING_KEY.encode(), b"owner", hashlib.sha256)
    identity = Principal(issuer=ISSUER, subject=owner.subject).identity
    owner_hash = hmac.new(key, identity.encode(), hashlib.sha256).hexdigest()[:32]
    return (await engine.count_workflows(f"{OWNER_ATTRIBUTE} = '{owner_hash}'{more}")).count


async def listed(engine: Client, owner: Named, number: int, more: str = "") -> None:
    """Return once Temporal lists so many."""

    async def so_many() -> bool:
        return await runs(engine, owner, more) == number

    await eventually(so_many, what=f"{number} runs")


async def full(owner: Named) -> list[str]:
    """As many tasks as one may have open."""
    return [await owner.start("slow", LONG) for _ in range(OPEN_TASKS)]


def refusal(result: dict[str, Any]) -> str:
    """The text of a tool error."""
    assert result["isError"] is True, result
    return str(result["content"][0]["text"])


async def test_one_more_than_the_limit_is_not_started_and_another_owners_is(
    alice: Named, bob: Named, engine: Client
) -> None:
    tasks = await full(alice)
    result = (await alice.call("slow", LONG)).result
    assert refusal(result).startswith(f"{OPEN_TASKS} of your tasks are open, and at most {OPEN_TASKS} may be")
    others = await full(bob)
    await listed(engine, bob, OPEN_TASKS)
    assert await runs(engine, alice) == OPEN_TASKS
    for client, ids in ((alice, tasks), (bob, others)):
        for task_id in ids:
            await client.cancel(task_id)


async def test_once_a_task_has_ended_another_may_begin(alice: Named) -> None:
    first, *others = await full(alice)
    assert refusal((await alice.call("slow", LONG)).result)
    await alice.cancel(first)
    await alice.finished(first)

    async def accepted() -> str | None:
        result = (await alice.call("slow", LONG)).result
        await asyncio.sleep(0.1)
        return result.get("taskId")

    for task_id in (await eventually(accepted, what="a place"), *others):
        await alice.cancel(task_id)


async def test_many_calls_at_once_do_not_slip_through(alice: Named, engine: Client) -> None:
    replies = await asyncio.gather(*(alice.call("slow", LONG) for _ in range(30)))
    tasks = [reply.result["taskId"] for reply in replies if "taskId" in reply.result]
    assert len(tasks) == OPEN_TASKS
    await listed(engine, alice, OPEN_TASKS)
    for task_id in tasks:
        await alice.cancel(task_id)


async def test_calls_that_wait_are_counted_like_tasks_and_refused_like_them(
    bridge: Process, alice: Named, engine: Client
) -> None:
    tasks = [await alice.start("slow", LONG) for _ in range(OPEN_TASKS - 1)]
    async with Named(bridge.url, alice.subject, FORMS) as plain:
        waiting = asyncio.create_task(plain.call("slow", LONG))
        await listed(engine, alice, OPEN_TASKS)
        assert refusal((await alice.call("slow", LONG)).result)
        assert refusal((await plain.call("slow", LONG)).result)
        waiting.cancel()
    for task_id in tasks:
        await alice.cancel(task_id)
    assert await runs(engine, alice) == OPEN_TASKS


async def test_a_client_of_an_older_revision_gets_the_same_tool_error(bridge: Process, alice: Named) -> None:
    tasks = await full(alice)
    older = OlderClient([bridge.url])
    older.headers["X-Forwarded-User"] = alice.subject
    async with older:
        message = await older.call("slow", LONG)
    assert refusal(message["result"]).startswith(f"{OPEN_TASKS} of your tasks are open")
    for task_id in tasks:
        await alice.cancel(task_id)


async def test_a_call_that_repeats_one_by_its_creation_key_is_never_refused(alice: Named, engine: Client) -> None:
    key = {CREATION_KEY: unique("key")}
    first = (await alice.call("slow", LONG, meta=key)).result["taskId"]
    for _ in range(2 * OPEN_TASKS):
        assert (await alice.call("slow", LONG, meta=key)).result["taskId"] == first
    others = [await alice.start("slow", LONG) for _ in range(OPEN_TASKS - 1)]
    assert (await alice.call("slow", LONG, meta=key)).result["taskId"] == first
    assert refusal((await alice.call("slow", LONG, meta={CREATION_KEY: unique("key")})).result)
    await listed(engine, alice, OPEN_TASKS)
    for task_id in (first, *others):
        await alice.cancel(task_id)


async def test_what_another_replica_started_counts(programs: Programs, alice: Named, engine: Client) -> None:
    tasks = await full(alice)
    await listed(engine, alice, OPEN_TASKS, " AND ExecutionStatus = 'Running'")
    replica = await programs.bridge(MCP_TASKS_OPEN_TASKS_PER_OWNER=str(OPEN_TASKS))
    async with Named(replica.url, alice.subject) as beside:
        assert refusal((await beside.call("slow", LONG)).result)
        for task_id in tasks:
            await beside.cancel(task_id)
