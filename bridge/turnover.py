"""Whether what had happened before a read began is worked in, of a run at which a workflow task is always pending.

Facts of Temporal this rests on: what happens while a workflow task is under way is buffered, and written to the history
right after its end; the next workflow task, once one starts and completes, has it worked in. A describe tells workflow
tasks apart by when they were scheduled, but not whether one was completed or failed: after a failure with something
buffered the next one is a first attempt, too. So describes say when it is worth asking, and the history decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from bridge.describe import Described

_ENDS: Final = frozenset({
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
})  # fmt: skip


class Turnover:
    """What the describes of one read showed of the pending workflow tasks of a run."""

    def __init__(self) -> None:
        self._run_id = ""
        self._pending: datetime | None = None
        self._ended = 0
        self.since = 0
        """Events of the run that the first describe showed."""

    def saw(self, run: Described) -> None:
        """Note a describe; of another run than before it is the first."""
        if run.run_id != self._run_id:
            self._run_id, self._pending, self._ended, self.since = run.run_id, None, 0, run.history_length
        if run.pending_since is not None and run.pending_since != self._pending:
            self._ended += self._pending is not None
            self._pending = run.pending_since

    @property
    def two_ended(self) -> bool:
        """Whether two of them have ended, however they did."""
        return self._ended >= 2


def worked_in(events: Iterable[HistoryEvent], since: int, until: int) -> bool:
    """Whether a snapshot, described with `until` events, is of a workflow task that has worked in all that had happened
    when there were `since`, buffered or not. `events` are those between, or the latest of them, oldest first.
    """
    first_end: int | None = None
    for event in events:
        if not since < event.event_id <= until or event.event_type not in _ENDS:
            continue
        if first_end is None:
            first_end = event.event_id
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            if event.workflow_task_completed_event_attributes.started_event_id > first_end:
                return True
    return False
