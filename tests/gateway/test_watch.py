"""Tasks that are listened to or read often: one poll each, told in order, and read from memory without going back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from bridge.envelope import Peer
from bridge.errors import TaskNotFound
from bridge.exchange import Caller
from bridge.follow import Moment
from bridge.identity import Identity
from bridge.status import Live, Terminal
from bridge.tasks import Tasks
from bridge.watch import LOOK_SECONDS
from bridge.watches import OFTEN_READS, Watches
from tests.gateway.conftest import OWNER, Bridge
from tests.support import eventually


class Heard:
    """What a listener was told."""

    def __init__(self) -> None:
        self.changes: list[Moment | None] = []
        self.ended = False

    async def more_than(self, count: int) -> int:
        async def grown() -> bool:
            return len(self.changes) > count

        await eventually(grown, what="a change")
        return len(self.changes)

    async def end(self) -> None:
        async def over() -> bool:
            return self.ended

        await eventually(over, what="the end")


@asynccontextmanager
async def listening(bridge: Bridge, task_id: str, *, every: bool = False) -> AsyncIterator[Heard]:
    heard = Heard()

    async def listen() -> None:
        async with bridge.watches.listening(task_id, every=every) as listener:
            async for change in listener.changes():
                heard.changes.append(change)
        heard.ended = True

    task = asyncio.create_task(listen())
    try:
        yield heard
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def watched(bridge: Bridge, task_id: str) -> None:
    """Read a task so often that it is watched, and wait until it is read from memory."""

    async def from_memory() -> bool:
        describes = bridge.gateway.describes
        await bridge.read(task_id)
        return bridge.gateway.describes == describes

    await eventually(from_memory, what="a read from memory")


async def test_a_listener_is_told_at_once_of_every_change_and_of_the_end(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]]})
    await served.parked(task, "a")
    async with listening(served, task, every=True) as heard:
        first = await heard.more_than(0)
        await served.answer(task, "a")
        await heard.more_than(first)
        await served.parked(task, "b")
        await served.answer(task, "b")
        await heard.end()
    assert isinstance(await served.read(task), Terminal)


async def test_what_happens_between_a_read_and_the_first_look_is_told(served: Bridge, replica: Bridge) -> None:
    task = await served.start("asker", {"rounds": [[f"q{number}"] for number in range(5)]})
    await replica.parked(task, "q0")
    read = await served.settled(task)
    for number in range(4):
        await replica.parked(task, f"q{number}")
        await served.answer(task, f"q{number}")
    await replica.parked(task, "q4")
    asked = list[str]()
    async with asyncio.timeout(20), served.watches.listening(task) as listener:
        listener.after = read
        async for moment in listener.changes():
            assert moment and moment.run.snapshot
            asked += moment.run.snapshot.input_requests or ()
            if asked[-1:] == ["q4"]:
                break
    assert asked == ["q1", "q2", "q3", "q4"]


async def test_listening_to_a_closed_task_ends_at_once(served: Bridge) -> None:
    task = await served.start("ender", {"how": "return", "value": 1})
    await served.ended(task)
    async with listening(served, task) as heard:
        await heard.end()


async def test_a_listener_is_led_through_continue_as_new_and_a_reset(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]], "continue_after": 1})
    await served.parked(task, "a")
    async with listening(served, task) as heard:
        await heard.more_than(0)
        await served.answer(task, "a")
        await served.parked(task, "b")
        await served.reset(task, (await served.settled(task)).run_id, 4)
        await served.settled(task)
        assert not heard.ended
        await served.answer(task, "b")
        await heard.end()


async def test_what_a_reset_copied_is_not_told_again(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"], ["c"]]})
    for key in ("a", "b"):
        await served.parked(task, key)
        await served.answer(task, key)
    await served.parked(task, "c")
    parked = await served.settled(task)
    async with listening(served, task, every=True) as heard:
        before = await heard.more_than(0)
        events = [event async for event in served.client.get_workflow_handle(task).fetch_history_events()]
        completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        *_, last = [event.event_id for event in events if event.event_type == completed]
        await served.reset(task, parked.run_id, last)
        await heard.more_than(before)
        await served.settled(task)
        await served.answer(task, "c")
        await heard.end()
    snapshots = [change.run.snapshot for change in heard.changes[before:] if change]
    assert {key for snapshot in snapshots if snapshot for key in snapshot.input_requests or ()} == {"c"}


async def test_a_task_without_changes_is_told_once(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    async with listening(served, task, every=True) as heard:
        await heard.more_than(0)
        await served.read(task)
        await asyncio.sleep(2 * LOOK_SECONDS)
        assert len(heard.changes) == 1


async def test_a_poll_is_shared_and_ends_with_its_last_listener(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    async with served.watches.listening(task) as one:
        await anext(one.changes())
        async with served.watches.listening(task) as two:
            await anext(two.changes())
            assert len(served.watches) == 1
        assert len(served.watches) == 1
    assert len(served.watches) == 0


async def test_a_listener_beyond_the_limit_is_told_by_describes_until_there_is_room(served: Bridge) -> None:
    watches = Watches(served.gateway, limit=1)
    first, second = [await served.start("asker", {"rounds": [["a"], ["b"]]}) for _ in range(2)]
    for task in (first, second):
        await served.parked(task, "a")
    async with asyncio.timeout(30), watches.listening(second) as looked_at:
        changes = looked_at.changes()
        async with watches.listening(first):
            assert len(watches) == 1
        await anext(changes)
    async with asyncio.timeout(30), watches.listening(first), watches.listening(second) as looked_at:
        changes = looked_at.changes()
        assert await anext(changes) is None, "it is to look at once"
        told = await anext(changes)
        assert told and told.run.snapshot and set(told.run.snapshot.input_requests or ()) == {"a"}
        await served.answer(second, "a")
        keys = set[str]()
        while keys != {"b"}:
            told = await anext(changes)
            assert told and told.run.snapshot
            keys = set(told.run.snapshot.input_requests or ())
    await watches.close()


async def test_a_listener_that_waited_for_room_gets_a_poll(served: Bridge) -> None:
    watches = Watches(served.gateway, limit=1)
    first, second = [await served.start("asker", {"rounds": [["a"]]}) for _ in range(2)]
    async with watches.listening(second):
        async with watches.listening(first):
            pass

        async def polled() -> bool:
            return len(watches) == 1 and watches.seen(second) is not None

        await eventually(polled, what="the poll")
    await watches.close()


async def test_a_listener_takes_the_place_of_a_poll_that_only_readers_use(served: Bridge) -> None:
    watches = served.watches
    watches._limit = 1
    read, heard = [await served.start("asker", {"rounds": [["a"]]}) for _ in range(2)]
    for task in (read, heard):
        await served.parked(task, "a")
    await watched(served, read)
    async with watches.listening(heard) as listener:
        await anext(listener.changes())
        assert watches.seen(heard) is not None
        assert watches.seen(read) is None
        assert len(watches) == 1


async def test_a_task_that_is_read_often_is_read_from_memory(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]]})
    parked = await served.parked(task, "a")
    await watched(served, task)
    describes = served.gateway.describes
    assert [await served.read(task) for _ in range(100)] == [parked] * 100
    assert served.gateway.describes == describes


async def test_a_task_that_is_read_now_and_then_is_not_watched(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.settled(task)
    for _ in range(OFTEN_READS - 1):
        await served.read(task)
    assert len(served.watches) == 0


@pytest.mark.parametrize("arguments", [{}, {"publish": False}], ids=["published", "silent"])
async def test_what_another_replica_did_is_seen_in_memory_soon(
    served: Bridge, replica: Bridge, arguments: dict[str, Any]
) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]], **arguments})
    await served.parked(task, "a")
    await watched(replica, task)
    await served.answer(task, "a")
    await replica.parked(task, "b")
    await served.answer(task, "b")
    assert (await replica.ended(task)).status == "completed"


async def test_the_end_of_a_watched_task_costs_no_request(served: Bridge, replica: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    await replica.gateway.retention()
    async with asyncio.timeout(20), replica.watches.listening(task) as listener:
        changes = listener.changes()
        await anext(changes)
        await served.answer(task, "a")
        async for _ in changes:
            pass
        costs = (replica.gateway.describes, replica.gateway.close_reads, replica.gateway.queries)
        assert isinstance(await replica.read(task), Terminal)
        assert (replica.gateway.describes, replica.gateway.close_reads, replica.gateway.queries) == costs


async def test_an_end_is_not_remembered_by_the_watch(served: Bridge) -> None:
    """A stream may stay open for longer than Temporal keeps the task."""
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    async with served.watches.listening(task):
        await served.answer(task, "a")
        await served.ended(task)
        await eventually(lambda: _dropped(served, task), what="the watch to be dropped")
        await served.delete(task)
        served.reader._outcomes.clear()
        with pytest.raises(TaskNotFound):
            await served.read(task)


async def _dropped(bridge: Bridge, task_id: str) -> bool:
    return task_id not in bridge.watches._watches  # `seen` is None as well until the end was heard of


async def test_after_an_acknowledgement_reads_are_described_until_the_watch_knows_of_it(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]]})
    await served.parked(task, "a")
    await watched(served, task)
    before = served.gateway.describes
    await served.answer(task, "a")
    served.reader.acknowledged(task, ["a"])
    state = await served.read(task)
    assert isinstance(state, Live) and "a" not in (state.input_requests or ())
    assert served.gateway.describes > before
    await served.parked(task, "b")
    await watched(served, task)


async def test_an_answer_is_checked_by_a_describe_even_where_memory_is_behind(
    served: Bridge, replica: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]]})
    await served.parked(task, "a")
    await watched(replica, task)
    behind = replica.watches.seen(task)
    monkeypatch.setattr(replica.watches, "seen", lambda _task_id: behind)
    await served.answer(task, "a")
    await served.parked(task, "b")
    caller = Caller(
        identity=Identity(principal=OWNER), channel="test", peer=Peer(version="2026-07-28", capabilities={})
    )
    answer = {"b": {"action": "accept", "content": {"text": "yes"}}}
    assert await Tasks(replica.gateway, replica.reader).deliver(task, answer, caller)
    assert (await served.ended(task)).status == "completed"


async def test_a_read_never_shows_less_than_this_replica_has_described(served: Bridge, replica: Bridge) -> None:
    """Another replica answers; this one's watch may lag, but what a describe showed is not taken back."""
    task = await served.start("asker", {"rounds": [[f"q{number}"] for number in range(20)]})
    await replica.parked(task, "q0")
    await watched(replica, task)
    seen = 0
    for number in range(20):
        await served.parked(task, f"q{number}")
        await served.answer(task, f"q{number}")
        replica.watches.described(await replica.gateway.describe(task))
        for _ in range(5):
            state = await replica.read(task)
            if isinstance(state, Live) and state.input_requests:
                (key,) = state.input_requests
                assert int(key[1:]) >= seen
                seen = int(key[1:])
    assert isinstance(await replica.ended(task), Terminal)


async def test_progress_of_an_activity_reaches_readers_and_listeners_of_a_watched_task(served: Bridge) -> None:
    task = await served.start("beater", {"report": {"progress": 1, "total": 4, "message": "rows"}})

    async def beating() -> bool:
        return (await served.read(task)).status_message == "1/4 rows"

    await eventually(beating, what="the report")
    async with listening(served, task) as heard:
        await heard.more_than(0)
        await watched(served, task)
        await eventually(beating, what="the report, from memory")
    await served.gateway.request_cancel(task, "enough")
    await served.ended(task)


async def test_a_watched_task_at_work_is_described_once_a_second_however_often_it_is_read(served: Bridge) -> None:
    task = await served.start("beater", {"report": {"progress": 1}})
    await served.settled(task)
    await watched(served, task)
    clock = asyncio.get_running_loop().time
    began, before, reads = clock(), served.gateway.describes, 0
    while clock() - began < 3 * LOOK_SECONDS:
        await served.read(task)
        reads += 1
        await asyncio.sleep(0.005)
    described = served.gateway.describes - before
    assert 1 <= described <= (clock() - began) / LOOK_SECONDS + 2 < reads
    await served.gateway.request_cancel(task, "enough")
    await served.ended(task)
