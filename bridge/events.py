"""One event of a run's history as a frozen value, with its payloads opened; what tells nothing of the task is None.

Only what the contract and Temporal itself write is read here: views and answers (docs/contract.md), steps, cancels and
the end of the run. Arguments and results of steps, and messages of failures, are not even opened.

Facts of Temporal this rests on: an activity's started event is written when the attempt ends, with the time at which
it started and the number of attempts; an event of a run that was forked off by a reset has the id and the time of the
event that it is a copy of.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import ValidationError
from temporalio.api.history.v1 import HistoryEvent

from bridge.closed import RESETTER
from bridge.describe import moment, parsed_view
from bridge.payloads import Payloads
from workflows.kit.contract import UPDATE_SIGNAL, VIEW_MEMO, TaskView, UpdateSignal

StepEnd = Literal["finished", "failed", "timed_out", "cancelled"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a task. `id` and `at` together name it within the task."""

    id: int
    at: datetime


@dataclass(frozen=True, slots=True)
class ViewPublished(Event):
    """The workflow published what it looks like now; None for a view that was too large for it."""

    view: TaskView | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class AnswersCame(Event):
    """Answers were delivered."""

    update: UpdateSignal = field(repr=False)


@dataclass(frozen=True, slots=True)
class CancelRequested(Event):
    """Somebody asked the task to stop: a reference to whom, as the canceller wrote it."""

    by: str


@dataclass(frozen=True, slots=True)
class StepScheduled(Event):
    """An activity of this type is to be run."""

    step: str


@dataclass(frozen=True, slots=True)
class StepStarted(Event):
    """The last of so many attempts of the step that `scheduled` (an event id) names."""

    scheduled: int
    attempts: int


@dataclass(frozen=True, slots=True)
class StepEnded(Event):
    """How the step that `scheduled` names ended."""

    scheduled: int
    end: StepEnd


@dataclass(frozen=True, slots=True)
class RunClosed(Event):
    """The run is over. The task goes on in `next_run_id`, if there is one, or in the run that a reset made of it."""

    next_run_id: str
    by_reset: bool


async def told(event: HistoryEvent, payloads: Payloads, task_id: str) -> Event | None:
    """What `event` tells of the task.

    Raises:
        EngineUnavailable: A payload cannot be opened with this replica's codec.
    """
    name = (event.WhichOneof("attributes") or "").removesuffix("_event_attributes")
    if read := _READERS.get(name):
        return await read(event, getattr(event, f"{name}_event_attributes"), payloads, task_id)
    return None


_Reader = Callable[[HistoryEvent, Any, Payloads, str], Awaitable[Event | None]]


async def _view(event: HistoryEvent, attributes: Any, payloads: Payloads, task_id: str) -> Event | None:
    fields = attributes.upserted_memo.fields
    if VIEW_MEMO not in fields:
        return None
    value = await payloads.json(fields[VIEW_MEMO])
    if isinstance(value, dict) and value.get("omitted") is True:
        return ViewPublished(*_place(event), view=None)
    view = parsed_view(value, task_id)
    return None if view is None else ViewPublished(*_place(event), view=view)


async def _answers(event: HistoryEvent, attributes: Any, payloads: Payloads, _task_id: str) -> Event | None:
    if attributes.signal_name != UPDATE_SIGNAL or not attributes.input.payloads:
        return None
    try:
        update = UpdateSignal.model_validate(await payloads.json(attributes.input.payloads[0]))
    except ValidationError:
        return None  # the workflow ignores it as well
    return AnswersCame(*_place(event), update=update)


async def _cancel(event: HistoryEvent, attributes: Any, _payloads: Payloads, _task_id: str) -> Event:
    return CancelRequested(*_place(event), by=str(attributes.cause))


async def _scheduled(event: HistoryEvent, attributes: Any, _payloads: Payloads, _task_id: str) -> Event:
    return StepScheduled(*_place(event), step=str(attributes.activity_type.name))


async def _started(event: HistoryEvent, attributes: Any, _payloads: Payloads, _task_id: str) -> Event:
    return StepStarted(*_place(event), scheduled=attributes.scheduled_event_id, attempts=attributes.attempt)


def _step_end(end: StepEnd) -> _Reader:
    async def read(event: HistoryEvent, attributes: Any, _payloads: Payloads, _task_id: str) -> Event:
        return StepEnded(*_place(event), scheduled=attributes.scheduled_event_id, end=end)

    return read


async def _closed(event: HistoryEvent, attributes: Any, _payloads: Payloads, _task_id: str) -> Event:
    return RunClosed(
        *_place(event),
        next_run_id=getattr(attributes, "new_execution_run_id", ""),
        by_reset=getattr(attributes, "identity", "") == RESETTER,
    )


def _place(event: HistoryEvent) -> tuple[int, datetime]:
    return event.event_id, moment(event.event_time)


_READERS: Final[Mapping[str, _Reader]] = {
    "workflow_properties_modified": _view,
    "workflow_execution_signaled": _answers,
    "workflow_execution_cancel_requested": _cancel,
    "activity_task_scheduled": _scheduled,
    "activity_task_started": _started,
    "activity_task_completed": _step_end("finished"),
    "activity_task_failed": _step_end("failed"),
    "activity_task_timed_out": _step_end("timed_out"),
    "activity_task_canceled": _step_end("cancelled"),
    "workflow_execution_completed": _closed,
    "workflow_execution_failed": _closed,
    "workflow_execution_timed_out": _closed,
    "workflow_execution_canceled": _closed,
    "workflow_execution_terminated": _closed,
    "workflow_execution_continued_as_new": _closed,
}
