"""When a read of a run at which a workflow task is always pending may trust its snapshot."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from bridge.status import Live
from bridge.turnover import Turnover, worked_in
from tests.gateway.conftest import Bridge
from tests.gateway.test_watch_rules import BEGAN, run
from tests.support import eventually
from workflows.kit.contract import TaskView

COMPLETED = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
TIMED_OUT = EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT
SIGNALED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED


def event(event_id: int, kind: EventType.ValueType, started: int = 0) -> HistoryEvent:
    made = HistoryEvent(event_id=event_id, event_type=kind)
    if kind == COMPLETED:
        made.workflow_task_completed_event_attributes.started_event_id = started
    return made


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], False),
        ([event(12, COMPLETED, 9)], False),  # what was buffered meanwhile is not in it
        ([event(12, COMPLETED, 9), event(13, SIGNALED), event(16, COMPLETED, 15)], True),
        ([event(12, FAILED), event(16, FAILED)], False),
        ([event(12, FAILED), event(16, FAILED), event(20, COMPLETED, 19)], True),
        ([event(12, TIMED_OUT), event(16, COMPLETED, 15)], True),
        ([event(12, COMPLETED, 9), event(16, COMPLETED, 11)], False),  # it had begun before
        ([event(8, COMPLETED, 7), event(12, COMPLETED, 11)], False),  # one was before the read
        ([event(12, COMPLETED, 9), event(31, COMPLETED, 30)], False),  # one is after the snapshot
    ],
)
def test_two_must_end_and_the_second_be_completed(events: list[HistoryEvent], expected: bool) -> None:
    assert worked_in(events, since=10, until=30) is expected


def test_workflow_tasks_are_told_apart_by_when_they_were_scheduled() -> None:
    turnover = Turnover()
    for second, ended in ((0, False), (0, False), (1, False), (None, False), (2, True)):
        pending = None if second is None else BEGAN + timedelta(seconds=second)
        turnover.saw(replace(run(5 + (second or 0)), pending_since=pending))
        assert turnover.two_ended is ended
    assert turnover.since == 5


def test_another_run_begins_anew() -> None:
    turnover = Turnover()
    for second in range(3):
        turnover.saw(replace(run(5), pending_since=BEGAN + timedelta(seconds=second)))
    turnover.saw(replace(run(3, run_id="next"), pending_since=BEGAN + timedelta(seconds=3)))
    assert (turnover.two_ended, turnover.since) == (False, 3)


async def test_a_task_that_is_never_at_rest_is_read_exactly_and_in_time(served: Bridge) -> None:
    task = await served.start("busy", {"at_a_time": 8})

    async def steps() -> float:
        return _steps((await served.described(task)).snapshot)

    await eventually(steps, what="the first steps")
    pending = 0
    for _ in range(20):
        before = await served.described(task)
        pending += before.pending_task
        state = await served.read(task, exact=True)  # a task that is read often is watched, and a watch may lag
        assert isinstance(state, Live)
        assert state.status_message is None
        assert state.progress[-1].progress >= _steps(before.snapshot) + before.pending_task
    assert pending > 10
    assert served.gateway.queries == 0
    await served.client.get_workflow_handle(task).terminate()


async def test_workflow_tasks_that_fail_one_after_the_other_have_worked_nothing_in(served: Bridge) -> None:
    task = await served.start("stumbler", {})
    await served.parked(task, "q")
    await served.answer(task, "q")
    served.reader.acknowledged(task, ["q"])
    for _ in range(3):
        state = await served.read(task)
        assert isinstance(state, Live)
        assert not state.input_requests
    await served.client.get_workflow_handle(task).terminate()


def _steps(view: TaskView | None) -> float:
    return view.progress[-1].progress if view and view.progress else 0
