"""What a caller who waits sees of its run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from bridge.envelope import Peer
from bridge.exchange import Caller, Exchange
from bridge.identity import Identity
from bridge.status import Live
from bridge.waits import Waits
from tests.gateway.conftest import OWNER, Bridge


async def unsent(_message: Mapping[str, Any]) -> None:
    raise AssertionError("nothing is sent in a wait")


WAITING = Exchange(
    request_id=1,
    params={},
    caller=Caller(identity=Identity(principal=OWNER), channel="test", peer=Peer(version="2026-07-28", capabilities={})),
    send=unsent,
)


async def test_a_question_that_could_not_be_read_is_seen_once_a_worker_is_back(bridge: Bridge, replica: Bridge) -> None:
    """A workflow without snapshots, on whose queue nobody worked when it was read: no event tells of the worker."""
    async with bridge.worker():
        task = await bridge.start("asker", {"rounds": [["a"]], "publish": False})
        await bridge.parked(task, "a")
    states = Waits(replica.gateway, replica.reader, replica.watches).states(task, WAITING, None)
    async with asyncio.timeout(40), aclosing(states):
        first = await anext(states)
        assert isinstance(first, Live) and not first.questions_known
        async with bridge.worker():
            async for state in states:
                if isinstance(state, Live) and state.input_requests:
                    assert list(state.input_requests) == ["a"]
                    return
