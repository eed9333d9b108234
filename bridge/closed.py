"""How a run ended: its close event as a frozen value, the only source of a terminal answer besides the memo.

One history read with the close-event filter gives it at once, without a worker and for as long as Temporal keeps the
run. A run that continues elsewhere (continue-as-new, a retry, a reset) names its successor here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure as RawFailure
from temporalio.api.history.v1 import HistoryEvent

from bridge.describe import moment
from bridge.payloads import Payloads

RESETTER: Final = "history-resetter"
"""Identity with which the server terminates a running run that is being reset."""

ENGINE: Final = "history-service"
"""Identity with which the server terminates a run that has outgrown a limit."""

OUTGROWN: Final = "a step or its history exceeded a size limit"

Ending = Literal["completed", "failed", "timed_out", "canceled", "terminated", "continued", "other"]
FailureKind = Literal["application", "canceled", "activity", "child", "other"]

_ENDINGS: Final[dict[str, Ending]] = {
    "workflow_execution_completed_event_attributes": "completed",
    "workflow_execution_failed_event_attributes": "failed",
    "workflow_execution_timed_out_event_attributes": "timed_out",
    "workflow_execution_canceled_event_attributes": "canceled",
    "workflow_execution_terminated_event_attributes": "terminated",
    "workflow_execution_continued_as_new_event_attributes": "continued",
}

_KINDS: Final[dict[str | None, FailureKind]] = {
    "application_failure_info": "application",
    "canceled_failure_info": "canceled",
    "activity_failure_info": "activity",
    "child_workflow_execution_failure_info": "child",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """One link of a failure chain, with its payloads read."""

    kind: FailureKind
    type: str = ""
    message: str = ""
    non_retryable: bool = False
    details: tuple[Any, ...] = ()
    stack_trace: str = ""
    cause: Failure | None = None

    @property
    def origin(self) -> Failure:
        """What an activity or a child workflow failed with; the failure itself where it wraps nothing."""
        link = self
        while link.kind in ("activity", "child") and link.cause is not None:
            link = link.cause
        return link

    def summary(self) -> list[str]:
        """One line per link, outermost first, for the log."""
        cause = self.cause.summary() if self.cause else []
        return [f"{self.kind} {self.type}: {self.message}", *([self.stack_trace] if self.stack_trace else []), *cause]


@dataclass(frozen=True, slots=True)
class Closed:
    """A close event. `result` is the first payload's JSON, `size` the event's bytes, `next_run_id` the run that goes
    on."""

    ending: Ending
    at: datetime
    result: Any = None
    failure: Failure | None = None
    reason: str = ""
    by_reset: bool = False
    next_run_id: str = ""
    size: int = 0


async def closed(event: HistoryEvent, payloads: Payloads) -> Closed | None:
    """`event` as the end of its run; None if the run has not ended (Temporal answers the filter with nothing, or
    another event).

    Raises:
        EngineUnavailable: A payload cannot be opened with this replica's codec.
    """
    name = event.WhichOneof("attributes") or ""
    ending = _ENDINGS.get(name)
    if ending is None:
        return None
    attributes = getattr(event, name)
    failure = result = None
    if ending == "completed":
        results: Sequence[Payload] = attributes.result.payloads
        result = await payloads.json(results[0]) if results else None
    elif ending == "failed":
        failure = await _failure(attributes.failure, payloads)
    return Closed(
        ending=ending,
        at=moment(event.event_time),
        result=result,
        failure=failure,
        reason=_reason(attributes) if ending == "terminated" else "",
        by_reset=ending == "terminated" and attributes.identity == RESETTER,
        next_run_id=getattr(attributes, "new_execution_run_id", ""),
        size=event.ByteSize(),
    )


async def _failure(raw: RawFailure, payloads: Payloads) -> Failure:
    """The chain under `raw`; protobuf itself bounds its depth at 100."""
    message, stack_trace = raw.message, raw.stack_trace
    if raw.HasField("encoded_attributes"):  # an encrypting failure converter moves both in here
        attributes = await payloads.json(raw.encoded_attributes)
        if isinstance(attributes, dict):
            message, stack_trace = str(attributes.get("message", "")), str(attributes.get("stack_trace", ""))
    application = raw.application_failure_info
    return Failure(
        kind=_KINDS.get(raw.WhichOneof("failure_info"), "other"),
        type=application.type,
        message=message,
        non_retryable=application.non_retryable,
        details=tuple([await payloads.json(payload) for payload in application.details.payloads]),
        stack_trace=stack_trace,
        cause=await _failure(raw.cause, payloads) if raw.HasField("cause") else None,
    )


def _reason(attributes: Any) -> str:
    """Why a run was terminated. Temporal itself ends what has outgrown a limit, and speaks of its insides then."""
    return OUTGROWN if attributes.identity == ENGINE else str(attributes.reason)
