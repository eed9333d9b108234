"""TR-03: a listener that does not read delays nobody, and costs this side little; in the end it is let go."""

from __future__ import annotations

import asyncio
import select
from typing import Final

import pytest

from tests.cases.client import McpClient, Reply, accept
from tests.cases.counts import counts
from tests.cases.processes import MEGABYTE, watched_bridge
from tests.cases.raw import RawStream, address, is_stalled, listen_bytes, never_reading, raw_stream
from tests.cases.stack import Process, Stack
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT_ONCE: Final = 15.0
"""The case allows 1 s; this machine may be busy. Who waits for the one that does not read waits for a minute."""

LET_GO_WITHIN: Final = 120.0
PAYLOAD_BYTES: Final = 500_000
"""A result holds it twice, as text and as structured content: 1 MB, more than a socket's buffers take of a dozen."""


async def answered_to_their_ends(client: McpClient, stream: RawStream, count: int) -> None:
    """Answer each question as soon as `stream` tells of it, until it has told `count` ends."""
    read, ended = 0, 0
    answers = list[asyncio.Task[Reply]]()
    keys = set[str]()
    while ended < count:

        async def more(read: int = read) -> bool:
            return len(stream.messages) > read

        await eventually(more, what=f"{count - ended} more ends", within=AT_ONCE)
        news = stream.messages[read:]
        read += len(news)
        for message in news:
            task = message["params"]
            if "taskId" not in task:
                continue
            if task["status"] == "completed":
                ended += 1
                assert len(task["result"]["structuredContent"]["arguments"]["payload"]) == PAYLOAD_BYTES
            for key in set(task.get("inputRequests", ())) - keys:
                keys.add(key)
                answers.append(asyncio.create_task(client.update(task["taskId"], {key: accept(text="yes")})))
            task.clear()  # what was read need not be kept
    for answer in await asyncio.gather(*answers):
        assert answer.result["resultType"] == "complete"


@counts("tasks, questions, lets_go", cut=(12, 4, False), full=(50, 10, True))
async def test_a_listener_that_does_not_read_hurts_nobody_else(
    stack: Stack, worker: Process, tasks: int, questions: int, lets_go: bool
) -> None:
    async with watched_bridge(stack) as watched:
        client = watched.client
        arguments = {"n": questions, "payload": "x" * PAYLOAD_BYTES, "label": unique("stalled")}
        task_ids = [await client.start("ask", arguments) for _ in range(tasks)]
        for task_id in task_ids:
            await client.parked(task_id)
        resident = watched.resident_bytes
        with never_reading(client, task_ids) as stalled:
            gone = select.poll()
            gone.register(stalled, 0)
            async with raw_stream(*address(client), listen_bytes(client, task_ids)) as stream:
                await stream.acknowledged()
                await answered_to_their_ends(client, stream, tasks)
                assert is_stalled(stalled), "otherwise this shows nothing"
            assert watched.resident_bytes < resident + 150 * MEGABYTE

            if lets_go:

                async def let_go() -> bool:
                    return bool(gone.poll(0))

                await eventually(let_go, what="the end of its connection", within=LET_GO_WITHIN)
                await eventually(watched.asks_nothing, what="no watch", within=LET_GO_WITHIN)
