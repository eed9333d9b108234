"""Callers that wait while Temporal is away from their bridge, or their bridge stops: an outage is waited out, and where
the caller gets an error instead of its result, its run ends, once Temporal is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus

from bridge.call import CREATION_KEY
from tests.cases.client import FORMS, FULL, McpClient, Reply, accept
from tests.cases.counts import counts
from tests.cases.stack import Process, Programs, Stack
from tests.encryption import CONVERTER
from tests.support import eventually, unique
from tests.wire import Wire

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engine(stack: Stack) -> Client:
    """Temporal itself, on a wire that nobody cuts."""
    return await Client.connect(stack.temporal.address, data_converter=CONVERTER)


class Apart:
    """A bridge on a queue of its own, and the wire between it and Temporal."""

    def __init__(
        self, engine: Client, programs: Programs, bridge: Process, queue: str, wire: Wire, client: McpClient
    ) -> None:
        self.engine = engine
        self.programs = programs
        self.bridge = bridge
        self.queue = queue
        self.wire = wire
        self.client = client

    async def run(self) -> WorkflowExecutionDescription:
        """The one run on this queue, as soon as there is one."""

        async def listed() -> list[str]:
            return [run.id async for run in self.engine.list_workflows(f"TaskQueue = '{self.queue}'")]

        (run_id,) = await eventually(listed, what="the run")
        return await self.engine.get_workflow_handle(run_id).describe()

    async def confirmed(self) -> None:
        """Return once the bridge knows that it has started that run: it has read from Temporal afterwards."""
        run = await self.run()
        assert (await self.client.get(run.id, capabilities=FULL)).result["taskId"] == run.id

    async def working(self) -> None:
        """Return once a step of that run is under way."""

        async def probe() -> bool:
            return bool((await self.run()).raw_description.pending_activities)

        await eventually(probe, what="the step")

    async def end(self) -> WorkflowExecutionStatus | None:
        """How that run ended, once it has."""

        async def closed() -> WorkflowExecutionDescription | None:
            run = await self.run()
            return run if run.close_time else None

        return (await eventually(closed, what="the end of the run", within=40)).status

    async def cancel_requested(self) -> bool:
        """Whether somebody has asked that run to stop."""
        return bool((await self.run()).raw_description.workflow_extended_info.cancel_requested)


@asynccontextmanager
async def apart(stack: Stack, engine: Client, longest_call: int = 3600) -> AsyncIterator[Apart]:
    wire, queue = Wire(stack.temporal.address), unique("apart")
    await wire.open()
    programs = Programs(environment={**stack.environment, "MCP_TASKS_TASK_QUEUE": queue})
    try:
        bridge = await programs.bridge(TEMPORAL_ADDRESS=wire.address, MCP_TASKS_LONGEST_CALL_SECONDS=str(longest_call))
        async with McpClient(bridge.url, FORMS) as client:
            yield Apart(engine, programs, bridge, queue, wire, client)
    finally:
        await programs.close()
        await wire.cut()


def calling(client: McpClient, tool: str, arguments: dict[str, Any], **changes: Any) -> asyncio.Task[Reply]:
    """A call under way."""
    return asyncio.create_task(client.call(tool, arguments, **changes))


async def test_a_call_that_waits_gets_its_result_after_an_outage(stack: Stack, engine: Client) -> None:
    async with apart(stack, engine) as there:
        await there.programs.worker()
        label = unique("through")
        call = calling(there.client, "slow", {"seconds": 1, "label": label})
        await there.confirmed()
        await there.wire.cut()
        await asyncio.sleep(3)
        await there.wire.open()
        assert (await call).result["structuredContent"] == {"steps": 1}
        assert there.programs.side_effects(label) == 1


async def test_an_outage_before_anybody_works_on_a_run_is_waited_out(stack: Stack, engine: Client) -> None:
    """The bridge cannot tell then whether anybody would."""
    async with apart(stack, engine) as there:
        label = unique("before")
        call = calling(there.client, "slow", {"seconds": 0, "label": label})
        await there.confirmed()
        await there.wire.cut()
        await asyncio.sleep(4)
        assert not call.done()
        await there.programs.worker()
        await there.wire.open()
        assert (await call).result["structuredContent"] == {"steps": 1}
        assert there.programs.side_effects(label) == 1


async def test_a_run_that_nobody_works_on_after_an_outage_is_given_up(stack: Stack, engine: Client) -> None:
    async with apart(stack, engine) as there:
        call = calling(there.client, "slow", {"seconds": 0})
        await there.confirmed()
        await there.wire.cut()
        await asyncio.sleep(4)
        await there.wire.open()
        reply = await call
        assert (reply.code, reply.message["error"]["data"]) == (-32603, {"retryAfterMs": 1000})
        assert await there.cancel_requested()


async def test_a_wait_whose_limit_comes_during_an_outage_ends_its_run_afterwards(stack: Stack, engine: Client) -> None:
    async with apart(stack, engine, longest_call=3) as there:
        await there.programs.worker()
        label = unique("limit")
        call = calling(there.client, "slow", {"seconds": 60, "label": label})
        await there.confirmed()
        await there.wire.cut()
        reply = await call
        assert (reply.code, reply.message["error"]["data"]["reason"]) == (-32603, "call_too_long")
        await there.wire.open()
        assert await there.end() is WorkflowExecutionStatus.CANCELED
        assert there.programs.side_effects(label) == 0


async def retried(client: McpClient, seconds: float) -> asyncio.Task[Reply]:
    """The second round of a call, which works for some seconds."""
    arguments = {"end": "question", "then": seconds}
    first = (await client.call("quick", arguments)).result
    (key,) = first["inputRequests"]
    return calling(client, "quick", arguments, state=first["requestState"], responses={key: accept(text="go")})


@pytest.mark.parametrize("retry", [False, True], ids=["call", "retry"])
async def test_leaving_during_an_outage_ends_the_run_afterwards(stack: Stack, engine: Client, retry: bool) -> None:
    async with apart(stack, engine) as there:
        await there.programs.worker()
        call = await retried(there.client, 60) if retry else calling(there.client, "slow", {"seconds": 60})
        await there.working()
        await there.wire.cut()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.sleep(1)
        await there.wire.open()
        assert await there.end() is WorkflowExecutionStatus.CANCELED


async def test_a_run_with_a_creation_key_outlives_the_bridge_of_its_caller(stack: Stack, engine: Client) -> None:
    async with apart(stack, engine) as there:
        await there.programs.worker()
        label = unique("stopped")
        arguments, meta = {"seconds": 4, "label": label}, {CREATION_KEY: label}
        call = calling(there.client, "slow", arguments, meta=meta)
        await there.working()
        assert await there.bridge.stop() == 0
        told = (await call).result
        other = await there.programs.bridge()
        async with McpClient(other.url, FORMS) as client:
            repeated, resumed = await asyncio.gather(
                client.call("slow", arguments, meta=meta), client.call("slow", arguments, state=told["requestState"])
            )
        assert repeated.result == resumed.result
        assert repeated.result["structuredContent"] == {"steps": 1}
        assert there.programs.side_effects(label) == 1


async def test_a_bridge_that_stops_hands_out_the_task_that_a_quick_result_was_waited_for(
    stack: Stack, engine: Client
) -> None:
    async with apart(stack, engine) as there:
        await there.programs.worker()
        call = calling(there.client, "quick", {"seconds": 4}, capabilities=FULL)
        await there.working()
        assert await there.bridge.stop() == 0
        created = (await call).result
        assert (created["resultType"], created["status"]) == ("task", "working")
        other = await there.programs.bridge()
        async with McpClient(other.url, FULL) as client:
            assert (await client.finished(created["taskId"]))["status"] == "completed"


@counts("callers", cut=60, full=300)
async def test_many_may_wait_at_one_time(stack: Stack, engine: Client, callers: int) -> None:
    async with apart(stack, engine) as there:
        await there.programs.worker()
        replies = await asyncio.gather(*(there.client.call("echo_task", {"x": n}) for n in range(callers)))
        # Where Temporal itself takes more than 2 s to hand out work, a few are told that nobody works, and to try again
        refused = [n for n, reply in enumerate(replies) if reply.code is not None]
        assert all(replies[n].message["error"]["data"] == {"retryAfterMs": 1000} for n in refused)
        assert 20 * len(refused) <= callers
        for n in refused:
            await asyncio.sleep(replies[n].message["error"]["data"]["retryAfterMs"] / 1000)
            replies[n] = await there.client.call("echo_task", {"x": n})
        assert [reply.result["structuredContent"] for reply in replies] == [{"x": n} for n in range(callers)]
