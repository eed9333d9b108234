"""What a watch may tell, moment by moment, without a Temporal: nothing is taken back, and everybody has a turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from bridge.describe import Described
from bridge.follow import LONG_POLL, SHORT_POLL, Follower, Moment
from bridge.gateway import Gateway
from bridge.watch import LOOK_SECONDS, MAX_UNREAD, OFTEN_SECONDS, STALE_SECONDS, Listener, Watch
from bridge.watches import MAX_LOOKS, MAX_READ_HISTORY, OFTEN_READS, Watches
from tests.support import eventually
from workflows.kit.contract import Progress, TaskView

BEGAN = datetime(2026, 11, 29, 10, tzinfo=UTC)


def run(length: int, *, run_id: str = "r", snapshot: TaskView | bool = True, **fields: Any) -> Described:
    """A run that shows so many events, with the given view, or some view, or none."""
    view = TaskView.model_validate({"v": 1, "status": "working", "changedAt": BEGAN.isoformat(), "statusMessage": "x"})
    described = Described(
        task_id="t",
        run_id=run_id,
        first_run_id="r",
        workflow_type="w",
        history_length=length,
        started_at=BEGAN,
        closed_at=None,
        continued=False,
        paused=False,
        cancel_requested=False,
        worker_seen=True,
        pending_task=False,
        reset_run_id="",
        memo=None,
        snapshot=(view if snapshot else None) if isinstance(snapshot, bool) else snapshot,
        activities=0,
        heartbeat=None,
    )
    return replace(described, **fields)


def asking(key: str) -> TaskView:
    """A view with one question."""
    request = {"method": "elicitation/create", "params": {"message": key}}
    return TaskView(status="input_required", input_requests={key: request}, changed_at=BEGAN)


class StillFollower:
    """Hears nothing."""

    patience = LONG_POLL
    heard_at = 0.0

    async def moments(self) -> AsyncGenerator[list[Moment]]:
        await asyncio.Event().wait()
        yield []


class StillGateway:
    """A Temporal in which nothing happens; counts the describes of each task."""

    def __init__(self) -> None:
        self.describes: Counter[str] = Counter()
        self.fails = False

    def follower(self, _task_id: str, _slots: object) -> Follower:
        return cast(Follower, StillFollower())

    async def describe(self, task_id: str) -> Described:
        self.describes[task_id] += 1
        if self.fails:
            raise RuntimeError("a bug")
        return run(5)


def polled_watch(*lengths: int) -> Watch:
    """A watch that was told these lengths by its poll, and hears on."""
    watch = Watch(cast(Follower, StillFollower()))
    watch.polling = cast("asyncio.Task[None]", object())
    for length in lengths:
        watch._take([Moment(run(length))])
    return watch


def told(listener: Listener) -> list[Moment | None]:
    """What it has to tell, up to now."""
    listener.end()

    async def read() -> list[Moment | None]:
        return [change async for change in listener.changes()]

    return asyncio.run(read())


async def firsts(listener: Listener, count: int) -> AsyncGenerator[Moment | None]:
    async with aclosing(listener.changes()) as changes:
        for _ in range(count):
            yield await anext(changes)


def progress(value: int) -> Progress:
    return Progress(progress=value)


def report(watch: Watch) -> Progress | None:
    """The report that the next listener is told."""
    listener = Listener()
    watch.join(listener)
    (moment,) = told(listener)
    assert moment is not None
    return moment.run.heartbeat


def test_what_a_describe_showed_is_a_floor_until_the_poll_has_come_that_far() -> None:
    watch = polled_watch(5)
    assert watch.seen(0) is not None
    watch.described(run(8))
    assert watch.seen(0) is None
    watch._take([Moment(run(7))])
    assert watch.seen(0) is None
    watch._take([Moment(run(8))])
    assert watch.seen(0) is not None


def test_an_older_describe_that_comes_late_does_not_lower_the_floor() -> None:
    watch = polled_watch(5)
    watch.described(run(8))
    watch.described(run(5))
    assert watch.seen(0) is None


def test_the_floor_of_a_run_is_reached_in_the_run_after_it() -> None:
    watch = polled_watch(5)
    watch.described(run(8))
    watch._take([Moment(run(3, run_id="next", started_at=BEGAN + timedelta(seconds=1)))])
    assert watch.seen(0) is not None


def test_what_was_heard_too_long_ago_is_not_relied_on() -> None:
    watch = polled_watch(5)
    assert watch.seen(STALE_SECONDS - 0.1) is not None
    assert watch.seen(STALE_SECONDS + 0.1) is None


def test_one_reader_a_second_describes_a_task_at_work() -> None:
    watch = polled_watch()
    watch._take([Moment(run(5, activities=1))])
    assert [watch.seen(now) is None for now in (0.0, 0.1, 0.9, 1.0, 1.5, 2.0)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]


def test_a_listener_leaves_out_what_it_has_read_itself() -> None:
    watch, listener = polled_watch(), Listener()
    watch.join(listener)
    watch._take([Moment(run(length), told=True) for length in (3, 5, 7)])
    listener.after = run(5)
    assert [moment and moment.run.history_length for moment in told(listener)] == [7]


def test_a_listener_is_told_once_of_a_view_that_a_run_handed_to_the_next() -> None:
    watch, listener = polled_watch(5), Listener()
    watch.join(listener)
    next_run: dict[str, Any] = {"run_id": "next", "started_at": BEGAN + timedelta(seconds=1)}
    view = TaskView(status="working", changed_at=BEGAN + timedelta(seconds=1))
    for length in (2, 4):
        watch._take([Moment(run(length, snapshot=view, **next_run))])
    assert [moment and moment.run.history_length for moment in told(listener)] == [5, 2]


def test_a_run_that_goes_on_as_it_was_is_no_news() -> None:
    watch, listener = polled_watch(5), Listener()
    watch.join(listener)
    watch._take([Moment(run(2, run_id="next", started_at=BEGAN + timedelta(seconds=1)))])
    assert [moment and moment.run.history_length for moment in told(listener)] == [5]


def test_a_listener_that_looked_itself_is_not_told_what_was_before() -> None:
    listener = Listener()
    listener.put(None)
    listener.put(Moment(run(5), told=True))
    listener.put(Moment(run(9), told=True))
    listener.end()

    async def read() -> list[int]:
        lengths = []
        async for moment in listener.changes():
            if moment is None:
                listener.after = run(7)
            else:
                lengths.append(moment.run.history_length)
        return lengths

    assert asyncio.run(read()) == [9]


def test_a_listener_that_does_not_keep_up_loses_the_oldest_changes() -> None:
    listener = Listener()
    many = [Moment(run(number, snapshot=asking(f"q{number}")), told=True) for number in range(MAX_UNREAD + 10)]
    for moment in many:
        listener.put(moment)
    assert told(listener) == many[10:]


def test_a_listener_that_does_not_keep_up_loses_no_change_to_progress() -> None:
    listener = Listener()
    asked = Moment(run(1, snapshot=asking("a")), told=True)
    reports = [Moment(run(number), told=True) for number in range(2, MAX_UNREAD + 10)]
    for moment in (asked, *reports):
        listener.put(moment)
    assert told(listener) == [asked, reports[-1]]


def test_progress_is_not_taken_back_where_the_poll_does_not_know_it() -> None:
    listener = Listener()
    listener.after = run(5, activities=1, heartbeat=progress(1))
    listener.put(Moment(run(5, activities=1), told=True))
    listener.put(Moment(run(5, activities=1, heartbeat=progress(2)), told=True))
    assert [moment and moment.run.heartbeat for moment in told(listener)] == [progress(2)]


def test_the_report_of_an_activity_stands_while_it_runs_and_not_beyond() -> None:
    watch = polled_watch()
    watch._take([Moment(run(5, activities=1))])
    watch.described(run(5, activities=1, heartbeat=progress(3)))
    watch._take([Moment(run(6, activities=2))])
    assert report(watch) == progress(3)
    watch._take([Moment(run(7, activities=1)), Moment(run(8, activities=2))])
    assert report(watch) is None


def test_a_report_that_was_described_before_the_activity_ended_is_not_shown_after_it() -> None:
    watch = polled_watch()
    watch._take([Moment(run(5, activities=1))])
    watch._take([Moment(run(9))])
    watch.described(run(5, activities=1, heartbeat=progress(3)))
    assert report(watch) is None


def test_listeners_without_a_poll_are_told_progress_by_describes() -> None:
    watch, early, late = Watch(cast(Follower, StillFollower())), Listener(), Listener()
    watch.join(early)
    watch.looked(run(5, activities=1, heartbeat=progress(1)), 0)
    watch.join(late)
    watch.looked(run(5, activities=1, heartbeat=progress(2)), 0)
    for listener in (early, late):
        assert [moment and moment.run.heartbeat for moment in told(listener)] == [progress(2)]


def test_the_poll_is_short_while_the_task_is_read() -> None:
    watch = polled_watch(5)
    assert watch.follower.patience == LONG_POLL
    watch.read(0)
    assert watch.follower.patience == SHORT_POLL


async def test_listeners_are_told_before_temporal_is_asked_again() -> None:
    order: list[str] = []

    class TwoQuestions(StillFollower):
        async def moments(self) -> AsyncGenerator[list[Moment]]:
            for length in (5, 8):
                yield [Moment(run(length, snapshot=asking(f"q{length}")), told=True)]
                order.append("asked again")

    watch, listener = Watch(cast(Follower, TwoQuestions())), Listener()
    watch.join(listener)
    polling = asyncio.create_task(watch.poll())
    async with aclosing(listener.changes()) as changes:
        while await anext(changes, None) is not None:
            order.append("told")
    await polling
    assert order == ["told", "asked again"] * 2


async def test_the_poll_is_long_again_when_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    watches = Watches(cast(Gateway, StillGateway()))
    async with watches.listening("t"):
        watches.read(run(5))
        watch = watches._watches["t"]
        assert watch.follower.patience == SHORT_POLL
        watches._tidy(asyncio.get_running_loop().time() + OFTEN_SECONDS)
        assert watch.follower.patience == LONG_POLL
    await watches.close()


async def test_a_long_history_is_not_read_for_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.watches.OFTEN_AFTER_SECONDS", 0)
    watches = Watches(cast(Gateway, StillGateway()))
    for _ in range(2 * OFTEN_READS):
        watches.read(run(MAX_READ_HISTORY + 1))
    assert len(watches) == 0
    for _ in range(OFTEN_READS):
        watches.read(run(MAX_READ_HISTORY))
    assert len(watches) == 1
    await watches.close()


async def test_listeners_without_a_poll_take_turns_to_be_described() -> None:
    gateway = StillGateway()
    watches = Watches(cast(Gateway, gateway), limit=0)
    tasks = [f"t{number}" for number in range(3 * MAX_LOOKS)]
    listening = [watches.listening(task) for task in tasks]
    for one in listening:
        await one.__aenter__()

    async def all_described() -> bool:
        return len(gateway.describes) == len(tasks)

    await eventually(all_described, what="a describe of each")
    assert set(gateway.describes.values()) == {1}
    for one in listening:
        await one.__aexit__(None, None, None)
    await watches.close()


async def test_a_bug_that_one_task_meets_does_not_stop_the_looks(caplog: pytest.LogCaptureFixture) -> None:
    gateway = StillGateway()
    gateway.fails = True
    watches = Watches(cast(Gateway, gateway), limit=0)
    async with watches.listening("t") as listener:

        async def logged() -> bool:
            return "look.failed" in caplog.messages

        await eventually(logged, what="the failure in the log")
        gateway.fails = False
        async with asyncio.timeout(20 * LOOK_SECONDS):
            assert [moment async for moment in firsts(listener, 2)][1] is not None
    await watches.close()


async def test_a_call_that_waits_looks_at_once_where_there_is_no_poll() -> None:
    watches = Watches(cast(Gateway, StillGateway()), limit=0)
    async with watches.listening("t", every=True) as listener:
        async with asyncio.timeout(LOOK_SECONDS / 2):
            assert await anext(listener.changes()) is None
    await watches.close()
