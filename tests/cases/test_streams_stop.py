"""TR-04: a bridge that is told to stop says so on every stream, and is gone before an orchestrator loses patience."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from typing import Final

import pytest
import pytest_asyncio

from tests.cases.client import FORMS, McpClient, accept
from tests.cases.listening import SUBSCRIPTION
from tests.cases.processes import watched_bridge
from tests.cases.raw import address, is_stalled, listen_bytes, never_reading, raw_stream, request_bytes
from tests.cases.stack import Process, Stack
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

LISTENERS: Final = 5
GONE_WITHIN: Final = 10.0
BETWEEN_SIGNALS: Final = 0.1
SLOW: Final = {"seconds": 4, "steps": 8}

STOPS: Final = {
    "sigterm": (signal.SIGTERM,),
    "ctrl-c": (signal.SIGINT,),
    "sigterm-twice": (signal.SIGTERM, signal.SIGTERM),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def loud_ids(bridge: Process) -> list[str]:
    """Tasks with results that are more than the buffers of one connection hold."""
    async with McpClient(bridge.url) as client:
        task_ids = [await client.start("emit_size", {"n": 900_000, "mode": "structured"}) for _ in range(4)]
        for task_id in task_ids:
            await client.finished(task_id)
        return task_ids


@pytest.mark.parametrize("signals", STOPS.values(), ids=STOPS)
async def test_a_stop_ends_every_stream_with_its_result(
    stack: Stack, client: McpClient, loud_ids: list[str], signals: tuple[signal.Signals, ...]
) -> None:
    """Among an idle connection, a call that waits, and a listener that does not read and so cannot be told."""
    label = unique("stopped")
    task_ids = [await client.start("ask", {"n": 1, "label": label}) for _ in range(LISTENERS)]
    async with AsyncExitStack() as open_connections, watched_bridge(stack) as watched:
        process, where = watched.process, address(watched.client)
        streams = {
            task_id: await open_connections.enter_async_context(
                raw_stream(*where, listen_bytes(watched.client, [task_id], id=f"listen {task_id}"))
            )
            for task_id in task_ids
        }
        for task_id, stream in streams.items():
            await stream.tells(task_id, "input_required")
        stalled = open_connections.enter_context(never_reading(watched.client, loud_ids))

        idle_reader, idle_writer = await asyncio.open_connection(*where)
        open_connections.callback(idle_writer.transport.abort)
        idle_writer.write(request_bytes(watched.client, "server/discover", {}))
        await idle_reader.readuntil(b"supportedVersions")

        async def is_full() -> bool:
            return is_stalled(stalled)

        await eventually(is_full, what="a listener that has not read")
        plain = await open_connections.enter_async_context(McpClient(process.url, FORMS))
        call = asyncio.create_task(plain.call("slow", SLOW | {"label": label}))

        async def under_way() -> bool:
            return stack.side_effects(label) > 0

        await eventually(under_way, what="the call's first step")
        async with asyncio.timeout(GONE_WITHIN):
            for number in signals:
                process.process.send_signal(number)
                await asyncio.sleep(BETWEEN_SIGNALS)
            assert await process.process.wait() == 0

        for task_id, stream in streams.items():
            await asyncio.wait_for(stream.reading, 10)
            last = stream.messages[-1]
            assert last["id"] == f"listen {task_id}"
            assert (last["result"]["resultType"], last["result"]["_meta"][SUBSCRIPTION]) == ("complete", last["id"])
            assert stream.clean_end
        async with asyncio.timeout(10):
            await idle_reader.read()
            assert idle_reader.at_eof()
            reply = await call
        assert reply.result["resultType"] == "input_required"
        assert watched.complaints() == []

    again = await stack.bridge()
    async with McpClient(again.url) as later:
        state = reply.result["requestState"]
        went_on = await later.call("slow", SLOW | {"label": label}, state=state, capabilities=FORMS)
        assert went_on.result["structuredContent"] == {"steps": SLOW["steps"]}
        for task_id in task_ids:
            (key,) = await later.parked(task_id)
            await later.update(task_id, {key: accept(text="yes")})
            assert (await later.finished(task_id))["status"] == "completed"
