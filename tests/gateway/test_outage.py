"""Temporal away: -32603 with a retry hint, in time, never "not found"; and everything goes on when it is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from bridge.errors import EngineUnavailable, TaskNotFound
from bridge.reader import Reader
from bridge.status import Terminal
from bridge.watches import Watches
from tests.gateway.conftest import DEADLINE, TESTER, Bridge, make_bridge, rules
from tests.support import eventually
from tests.wire import Wire


@pytest.fixture
async def wire(temporal: str) -> AsyncIterator[Wire]:
    wire = Wire(temporal)
    await wire.open()
    yield wire
    wire.flowing.set()
    wire.answering.set()
    await wire.cut()


@pytest.fixture
async def remote(wire: Wire, bridge: Bridge) -> AsyncIterator[Bridge]:
    """A replica that reaches Temporal over the wire; `bridge` beside it reaches it always."""
    remote = await make_bridge(wire.address, bridge.queue)
    yield remote
    await remote.watches.close()
    await remote.reader.close()


def calls(remote: Bridge, task: str) -> list[Callable[[], Awaitable[Any]]]:
    return [
        lambda: Reader(remote.gateway, Watches(remote.gateway), rules).read(task, TESTER),
        lambda: remote.answer(task, "a"),
        lambda: remote.gateway.request_cancel(task, "p"),
        lambda: remote.gateway.check(),
        lambda: remote.start("asker", {"rounds": []}),
    ]


async def expect_outage(call: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(EngineUnavailable) as caught:
            await call()
    assert (caught.value.code, caught.value.data) == (-32603, {"retryAfterMs": 1000})


async def test_a_server_that_was_never_there_is_an_outage(wire: Wire, bridge: Bridge) -> None:
    await wire.cut()
    remote = await make_bridge(wire.address)
    for call in calls(remote, "t"):
        await expect_outage(call)


async def test_a_cut_connection_is_an_outage_and_heals(wire: Wire, remote: Bridge) -> None:
    task = await remote.start("asker", {"rounds": [["a"]]})
    await wire.cut()
    for call in calls(remote, task):
        await expect_outage(call)
    await wire.open()

    async def healed() -> bool:
        with suppress(EngineUnavailable):
            return (await remote.read(task)).status == "working"
        return False

    await eventually(healed, what="the connection")


async def test_a_frozen_server_is_an_outage_within_seconds(wire: Wire, remote: Bridge) -> None:
    task = await remote.start("asker", {"rounds": [["a"]]})
    wire.flowing.clear()
    await asyncio.gather(*(expect_outage(call) for call in calls(remote, task)))


async def test_a_known_outcome_is_answered_during_an_outage(wire: Wire, remote: Bridge, served: Bridge) -> None:
    task = await remote.start("ender", {"how": "return", "value": 1})
    state = await remote.ended(task)
    await wire.cut()
    assert await remote.read(task) == state


async def test_a_listener_is_told_what_happened_in_an_outage(wire: Wire, remote: Bridge, served: Bridge) -> None:
    task = await remote.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    async with remote.watches.listening(task) as listener:
        changes = listener.changes()
        async with asyncio.timeout(30):
            assert await anext(changes)
            await wire.cut()
            await served.answer(task, "a")
            await served.ended(task)
            await wire.open()
            assert [change async for change in changes]
    assert isinstance(await remote.read(task), Terminal)


async def test_a_task_that_is_watched_is_no_news_while_temporal_is_away(
    wire: Wire, remote: Bridge, served: Bridge
) -> None:
    task = await remote.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    async with remote.watches.listening(task) as listener:
        await anext(listener.changes())
        await remote.read(task)
        await wire.cut()

        async def distrusted() -> bool:
            return remote.watches.seen(task) is None

        await eventually(distrusted, what="the watch to be distrusted")
        with pytest.raises(EngineUnavailable):
            await remote.read(task)


async def test_a_start_whose_answer_was_lost_starts_one_run(
    wire: Wire, remote: Bridge, bridge: Bridge, caplog: pytest.LogCaptureFixture
) -> None:
    task = f"t-{bridge.queue}"
    await remote.gateway.check()
    assert await remote.gateway._attributes.available()
    wire.answering.clear()
    with caplog.at_level(logging.INFO):
        starting = asyncio.create_task(
            remote.gateway.start(
                task_id=task, workflow_type="mute", task_queue=bridge.queue, arguments=[{}], memo=bridge.memo()
            )
        )

        async def started() -> bool:
            with suppress(TaskNotFound):
                return bool((await bridge.described(task)).run_id)
            return False

        await eventually(started, what="the run")
        sent = wire.sent

        async def given_up() -> bool:
            return wire.sent > sent

        await eventually(given_up, what="the end of the first attempt")
        wire.answering.set()
        assert await starting is True
    assert "start.found_after_retry" in caplog.messages
    assert (await bridge.described(task)).first_of_chain


async def test_a_run_that_was_there_before_a_start_whose_answer_was_lost_is_not_taken_for_its_own(
    wire: Wire, remote: Bridge, bridge: Bridge, caplog: pytest.LogCaptureFixture
) -> None:
    task = f"t-{bridge.queue}"
    run: dict[str, Any] = {"task_id": task, "workflow_type": "mute", "task_queue": bridge.queue, "arguments": [{}]}
    assert await bridge.gateway.start(**run, memo=bridge.memo()) is True
    await remote.gateway.check()
    assert await remote.gateway._attributes.available()
    wire.answering.clear()
    with caplog.at_level(logging.INFO):
        starting = asyncio.create_task(remote.gateway.start(**run, memo=bridge.memo()))
        sent = wire.sent

        async def first_attempt() -> bool:
            return wire.sent > sent

        await eventually(first_attempt, what="the first attempt")
        sent = wire.sent
        await eventually(first_attempt, what="the end of the first attempt")
        wire.answering.set()
        assert await starting is False
    assert "start.found_after_retry" in caplog.messages
