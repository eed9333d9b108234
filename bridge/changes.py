"""When a task may look different: a long poll on its history.

An item means "read it now"; the first one comes as soon as the subscription stands, so that a change between a
caller's last read and its subscription is not lost. A page that only says that a workflow task was scheduled or
started is skipped: nothing changed yet. Runs are followed through continue-as-new, retries and resets of a running
run; the end of the iteration is the end of the task.

An outage is waited out, with the last token, for as long as the caller wants. No state is kept outside the generator,
so it may be cancelled at any time. The timeout must never come near 1 s: Temporal answers such a long poll at once,
about 900 times a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest, GetWorkflowExecutionHistoryResponse
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from bridge.closed import RESETTER
from bridge.errors import TaskNotFound, is_connect_failure

logger = logging.getLogger(__name__)

_POLL: Final = timedelta(seconds=60)
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0

_NO_CHANGE: Final = frozenset(
    {EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED}
)


async def changes(client: Client, task_id: str) -> AsyncGenerator[None]:
    """See `Gateway.changes`."""
    run_id, token = "", b""  # no run id: the latest; the token then names it
    pause = _FIRST_PAUSE
    subscribed = False
    while True:
        try:
            page = await _page(client, task_id, run_id, token)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise TaskNotFound from error
            if error.status is RPCStatusCode.INVALID_ARGUMENT:
                token = b""  # a server may forget its tokens; from the start again
            logger.info("changes.interrupted", extra={"task_id": task_id, "grpc_status": error.status.name})
        except RuntimeError as error:
            if not is_connect_failure(error):
                raise
        else:
            pause = _FIRST_PAUSE
            token = page.next_page_token
            events = page.history.events
            if not subscribed or any(event.event_type not in _NO_CHANGE for event in events):
                subscribed = True
                yield
            if not token:
                following = _following(events[-1]) if events else None
                if following is None:
                    return
                run_id = following
            continue
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _following(event: HistoryEvent) -> str | None:
    """The run in which the task goes on after `event`, "" for the latest; None at its end."""
    attributes = getattr(event, event.WhichOneof("attributes") or "", None)
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
        return "" if event.workflow_execution_terminated_event_attributes.identity == RESETTER else None
    return getattr(attributes, "new_execution_run_id", "") or None


async def _page(client: Client, task_id: str, run_id: str, token: bytes) -> GetWorkflowExecutionHistoryResponse:
    return await client.workflow_service.get_workflow_execution_history(
        GetWorkflowExecutionHistoryRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=task_id, run_id=run_id),
            next_page_token=token,
            wait_new_event=True,
        ),
        timeout=_POLL,
    )
