"""One consistent read of a task: the raw describe response as a frozen value.

The raw response, because the SDK's own reader raises on a status it does not know (a paused workflow has one today),
and because the pending workflow task, the worker's version stamp and the heartbeats exist only there.

Facts of Temporal this rests on: the stamp is set when a run's first workflow task completes, not when it starts; a
reset run carries `last_reset_time`; a run in the pause between two continue-as-news has one event and neither stamp
nor pending workflow task.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from mcp_types.methods import serialize_server_result
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import PendingActivityState, WorkflowExecutionStatus
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

from bridge.codec import ENCODING, ENCODING_FIELD
from bridge.errors import EngineUnavailable
from bridge.payloads import Payloads
from workflows.kit.contract import TASK_MEMO, VIEW_MEMO, Progress, TaskMemo, TaskView
from workflows.kit.questions import request_problem

logger = logging.getLogger(__name__)

_CONTINUED: Final = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
_PAUSED: Final = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_PAUSED
_RUNNING: Final = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Described:
    """A task's run as a describe, or its history, showed it. Each is equal to itself alone.

    `activities` is how many an open run has scheduled or running; while one runs, `heartbeat` moves without an event.
    `plain`: the task was started in plain text, so a codec is nothing that its worker must have. `pending_since` tells
    pending workflow tasks apart, by the time at which one was scheduled; None for one that is tried again.
    """

    task_id: str
    run_id: str
    first_run_id: str
    workflow_type: str
    history_length: int
    started_at: datetime
    closed_at: datetime | None
    continued: bool
    paused: bool
    cancel_requested: bool
    worker_seen: bool
    pending_task: bool
    reset_run_id: str
    memo: TaskMemo | None
    snapshot: TaskView | None
    activities: int
    heartbeat: Progress | None
    plain: bool = False
    pending_since: datetime | None = None

    @property
    def first_of_chain(self) -> bool:
        """Whether this is the run that the task was started as; a reset or continued run never is."""
        return self.run_id == self.first_run_id

    @property
    def first_task_unfinished(self) -> bool:
        """Whether no workflow task of this run has completed, so that a query would wait for nothing.

        A worker whose SDK sends no stamp leaves a parked run without one; its history is longer and no workflow task
        is pending.
        """
        return self.closed_at is None and not self.worker_seen and (self.pending_task or self.history_length == 1)

    @property
    def settled(self) -> bool:
        """Whether every event so far has been worked into the workflow's state."""
        return self.worker_seen and not self.pending_task and not self.paused

    def reaches(self, other: Described) -> bool:
        """Whether this shows at least the events that `other` shows, of the same task."""
        if self.run_id == other.run_id:
            return self.history_length >= other.history_length
        return self.started_at > other.started_at


async def described(response: DescribeWorkflowExecutionResponse, payloads: Payloads, task_id: str) -> Described:
    """The parts of `response` that reading a task needs.

    Raises:
        EngineUnavailable: The memo cannot be opened with this replica's codec.
    """
    info = response.workflow_execution_info
    extended = response.workflow_extended_info
    memo = info.memo.fields
    pending = response.pending_workflow_task
    return Described(
        task_id=task_id,
        run_id=info.execution.run_id,
        first_run_id=info.first_run_id or info.execution.run_id,
        workflow_type=info.type.name,
        history_length=info.history_length,
        started_at=moment(info.start_time),
        closed_at=moment(info.close_time) if info.HasField("close_time") else None,
        continued=info.status == _CONTINUED,
        paused=info.status == _PAUSED,
        cancel_requested=extended.cancel_requested,
        worker_seen=info.HasField("most_recent_worker_version_stamp"),
        pending_task=response.HasField("pending_workflow_task"),
        reset_run_id=extended.reset_run_id,
        memo=await payloads.parsed(memo[TASK_MEMO], _memo) if TASK_MEMO in memo else None,
        snapshot=await snapshot_in(memo, payloads),
        activities=0 if info.HasField("close_time") else len(response.pending_activities),
        heartbeat=await _heartbeat(list(response.pending_activities), payloads),
        plain=TASK_MEMO in memo and memo[TASK_MEMO].metadata.get(ENCODING_FIELD) != ENCODING,
        pending_since=moment(pending.scheduled_time) if pending.attempt == 1 else None,
    )


def moment(value: Timestamp) -> datetime:
    """`value` in UTC, to the microsecond."""
    return value.ToDatetime(tzinfo=UTC)


def utc(moment: datetime) -> datetime:
    """`moment` with an offset; a workflow in another language may leave it out, and means UTC.

    Raises:
        OverflowError: In UTC it is before year 1 or after year 9999.
    """
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def parsed_view(value: Any, task_id: str) -> TaskView | None:
    """`value` as a view; None, and a line in the log, if it is not one. Questions that MCP does not define are left
    out, with a line each: no client could be shown them, and no answer be checked.
    """
    try:
        view = TaskView.model_validate(value)
        utc(view.changed_at)
    except (ValidationError, OverflowError) as error:
        _log_unreadable("view.unreadable", task_id, error)
        return None
    requests = view.input_requests or {}
    problems = {key: why for key, request in requests.items() if (why := _question_problem(request)) is not None}
    for key, why in problems.items():
        logger.warning("question.unusable", extra={"task_id": task_id, "key": key, "reason": why})
    if not problems:
        return view
    usable = {key: request for key, request in requests.items() if key not in problems}
    return view.model_copy(update={"input_requests": usable})


def _question_problem(request: dict[str, Any]) -> str | None:
    """Why `request` cannot be asked; None if it can. What the SDK's kernel finds malformed would cost the caller that
    waits for it the whole answer.
    """
    if problem := request_problem(request):
        return problem
    try:
        asked = {"resultType": "input_required", "inputRequests": {"key": request}}
        serialize_server_result("tools/call", LATEST_MODERN_VERSION, asked)
    except ValueError as error:  # pydantic's errors, of reading and of writing
        return "it is no input request by the schema of MCP" if isinstance(error, ValidationError) else str(error)
    return None


def _memo(value: Any, task_id: str) -> TaskMemo | None:
    try:
        memo = TaskMemo.model_validate(value)
        utc(memo.created_at)
    except (ValidationError, OverflowError) as error:
        _log_unreadable("memo.unreadable", task_id, error)
        return None
    return memo


def _log_unreadable(event: str, task_id: str, error: ValidationError | OverflowError) -> None:
    if isinstance(error, ValidationError):
        problems: list[Any] = error.errors(include_input=False, include_url=False)
    else:
        problems = [{"msg": str(error)}]
    logger.warning(event, extra={"task_id": task_id, "errors": problems})


async def snapshot_in(memo: Mapping[str, Payload], payloads: Payloads) -> TaskView | None:
    """The published view in the fields of a memo; None if there is none, or it was too large.

    Raises:
        EngineUnavailable: It cannot be opened with this replica's codec.
    """
    return await payloads.parsed(memo[VIEW_MEMO], _snapshot) if VIEW_MEMO in memo else None


def _snapshot(value: Any, task_id: str) -> TaskView | None:
    omitted = isinstance(value, dict) and value.get("omitted") is True
    return None if omitted else parsed_view(value, task_id)


async def _heartbeat(activities: list[PendingActivityInfo], payloads: Payloads) -> Progress | None:
    """The newest report of a running activity. One that cannot be read is none: progress is never worth an error."""
    beating = [one for one in activities if one.state == _RUNNING and one.heartbeat_details.payloads]
    for activity in sorted(beating, key=lambda one: one.last_heartbeat_time.ToNanoseconds(), reverse=True):
        try:
            return Progress.model_validate(await payloads.json(activity.heartbeat_details.payloads[0]))
        except (ValidationError, EngineUnavailable):
            continue
    return None
