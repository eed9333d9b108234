"""The query for a live task's view, and what it means when there is none.

A query that no worker answers would hang for 30 s. With at most a second per attempt Temporal says at once that a
queue has no poller; one that had a poller less than 20 s ago, or a worker whose cached run moved away, is worth a
second attempt.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import QueryRejectCondition
from temporalio.api.errordetails.v1 import QueryFailedFailure
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.workflowservice.v1 import QueryWorkflowRequest
from temporalio.service import RPCError, RPCStatusCode

from bridge.connection import Connection
from bridge.describe import parsed_view
from bridge.errors import Busy, NotOpen, NoUsableView, NoView, NoWorker
from workflows.kit.contract import VIEW_QUERY, TaskView

logger = logging.getLogger(__name__)

QUERY_ATTEMPT: Final = timedelta(seconds=1)
"""Up to 1 s Temporal says within milliseconds that a queue has no poller; above, only at the deadline."""

QUERY_SECONDS: Final = 2.0

TIMED_OUT: Final = frozenset({RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED})
"""A client-side timeout is CANCELLED "Timeout expired", a server-side one DEADLINE_EXCEEDED; they race."""

_NO_POLLER: Final = "no poller seen"


@dataclass(frozen=True, slots=True)
class Answer:
    """A view as the query gave it, and the bytes it took."""

    view: TaskView
    size: int


async def ask_view(connection: Connection, task_id: str, run_id: str) -> Answer:
    """See `Gateway.query_view`."""
    request = QueryWorkflowRequest(
        namespace=connection.client.namespace,
        execution=WorkflowExecution(workflow_id=task_id, run_id=run_id),
        query=WorkflowQuery(query_type=VIEW_QUERY),
        query_reject_condition=QueryRejectCondition.QUERY_REJECT_CONDITION_NOT_OPEN,
    )
    async with connection.bounded("query", QUERY_SECONDS + 0.5):
        response = None
        for last in (False, True):
            try:
                response = await connection.client.workflow_service.query_workflow(request, timeout=QUERY_ATTEMPT)
                break
            except RPCError as error:
                if error.status not in TIMED_OUT:
                    if (reason := _no_view(error)) is None:
                        raise
                    raise reason from error
                if last:
                    raise NoWorker from error
    assert response is not None  # noqa: S101 - the loop ends with one or raises
    if response.HasField("query_rejected"):
        raise NotOpen
    payload = response.query_result.payloads[0] if response.query_result.payloads else None
    view = parsed_view(await connection.payloads(task_id).json(payload), task_id) if payload else None
    if view is None or payload is None:
        raise NoUsableView
    if view.ended:
        raise NotOpen  # Temporal lets a query ride on the workflow task that ends the run
    return Answer(view, len(payload.data))


def _no_view(error: RPCError) -> NoView | None:
    """Why a query gave no view; None if the error says something about Temporal rather than about the workflow."""
    match error.status:
        case RPCStatusCode.RESOURCE_EXHAUSTED:
            return Busy()
        case RPCStatusCode.FAILED_PRECONDITION:
            return NoWorker() if _NO_POLLER in error.message.lower() else Busy()
        case RPCStatusCode.INVALID_ARGUMENT:
            if not any(detail.Is(QueryFailedFailure.DESCRIPTOR) for detail in error.grpc_status.details):
                logger.warning("query.refused", extra={"detail": error.message})
            return NoUsableView()
        case RPCStatusCode.NOT_FOUND:
            return NotOpen()
        case _:
            return None
