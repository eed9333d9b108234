"""CC-08: a proxy cuts every stream, and the client is back, with the same id, before the old stream is known dead."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Final

import pytest

from tests.cases.client import McpClient, accept
from tests.cases.counts import counts
from tests.cases.listening import SUBSCRIPTION
from tests.cases.processes import watched_bridge
from tests.cases.proxies import Proxy
from tests.cases.raw import RawStream, address, listen_bytes, raw_stream
from tests.cases.stack import Process, Stack
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIFETIME: Final = 2.0
OVERLAP: Final = 0.05
FREED_WITHIN: Final = 60.0


@counts("rounds", cut=8, full=60)
async def test_listening_again_and_again_misses_nothing_and_leaves_nothing(
    stack: Stack, worker: Process, client: McpClient, rounds: int
) -> None:
    chance = random.Random(rounds)  # noqa: S311  # the same moments in every run
    label = unique("cut")
    task_id, other_id = [await client.start("ask", {"n": 1, "label": label}) for _ in range(2)]
    (key,) = await client.parked(task_id)

    async def answer(seconds: float) -> None:
        await asyncio.sleep(seconds)
        await client.update(task_id, {key: accept(text="yes")})

    async with watched_bridge(stack) as watched, AsyncExitStack() as connections:
        await watched.client.alive()
        descriptors = watched.descriptors
        proxy = Proxy(target=address(watched.client), lifetime_seconds=LIFETIME)
        await connections.enter_async_context(proxy.running())
        request = listen_bytes(watched.client, [task_id, other_id], id=1)
        answering = asyncio.create_task(answer(chance.uniform(0, (rounds - 1) * LIFETIME)))
        streams = list[RawStream]()
        for _ in range(rounds):
            streams.append(await connections.enter_async_context(raw_stream("127.0.0.1", proxy.port, request)))
            assert await streams[-1].acknowledged() == {"taskIds": [task_id, other_id]}
            assert streams[-1].messages[0]["params"]["_meta"] == {SUBSCRIPTION: 1}
            await asyncio.sleep(LIFETIME - chance.uniform(0, OVERLAP))
        await answering
        await asyncio.gather(*(stream.reading for stream in streams))
        assert proxy.cuts == rounds
        assert not any(stream.clean_end for stream in streams)
        assert any(stream.told(task_id, "completed") for stream in streams)

        async def descriptors_are_back() -> bool:
            return watched.descriptors <= descriptors + 5

        await eventually(descriptors_are_back, what="descriptors as before", within=FREED_WITHIN)
        await eventually(watched.asks_nothing, what="no watch", within=FREED_WITHIN)
        assert watched.complaints() == []
    await client.cancel(other_id)
