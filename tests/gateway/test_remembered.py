"""What a reader remembers of what it made, and for how long."""

from __future__ import annotations

import gc
from datetime import timedelta

import pytest

from bridge.errors import TaskNotFound
from tests.gateway.conftest import DEADLINE, Bridge, asked
from tests.support import eventually
from workflows.kit.contract import Principal


async def test_of_a_task_that_temporal_tells_nothing_new_of_the_same_state_is_told(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a", "b"]]})
    await served.parked(task, "a", "b")
    await served.settled(task)
    describes = served.gateway.describes
    assert await served.read(task) is await served.read(task)
    assert served.gateway.describes == describes + 2
    with pytest.raises(TaskNotFound):
        await served.read(task, Principal(issuer="local", subject="somebody else"))
    await served.answer(task, "a")
    assert asked(await served.parked(task, "b")) == {"b"}


async def test_what_was_made_of_a_run_goes_with_the_run(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    await served.settled(task)
    await served.read(task)
    assert len(served.reader._told) == 1
    served.gateway._runs.clear()
    gc.collect()
    assert len(served.reader._told) == 0


async def test_a_view_that_a_query_told_is_kept_once(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]], "publish": False})
    await served.parked(task, "a")
    await served.settled(task)
    for _ in range(2):
        assert asked(await served.read(task)) == {"a"}
    assert (task in served.reader._views, len(served.reader._told)) == (True, 0)


async def test_of_a_watched_task_that_has_not_changed_the_same_state_is_told(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a", "b"]]})
    await served.parked(task, "a", "b")
    await served.settled(task)
    async with served.watches.listening(task) as listener:
        await listener.arrival(DEADLINE)

        async def unchanged() -> bool:
            described = served.gateway.describes
            same = await served.read(task) is await served.read(task)
            return same and served.gateway.describes == described

        await eventually(unchanged, what="the watch")
        with pytest.raises(TaskNotFound):
            await served.read(task, Principal(issuer="local", subject="somebody else"))
        await served.answer(task, "a")
        assert asked(await served.parked(task, "b")) == {"b"}


async def test_caches_are_bounded_by_bytes(served: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    task = await served.start("ender", {"how": "return", "value": "x" * 1_000_000})
    monkeypatch.setattr("bridge.reader.OUTCOME_CACHE_BYTES", 1_000_000)
    first = await served.ended(task)
    assert task not in served.reader._outcomes
    assert await served.read(task) == first
    assert timedelta(0) < timedelta(milliseconds=first.ttl_ms)
