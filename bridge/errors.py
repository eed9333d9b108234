"""What can go wrong between the bridge and Temporal, and the one place where gRPC errors become what a client may see.

    BridgeError             knows its JSON-RPC code, text and data; the details are only logged
    ├── TaskNotFound        -32602  unknown, deleted by retention, no task, or somebody else's: one answer for all
    ├── NotAllowed          -32602  somebody else's, which the caller may read, and not answer or cancel as was asked
    ├── TooLarge            -32602  arguments or answers above a limit that no retry changes
    ├── EngineUnavailable   -32603  Temporal is away, overloaded or refuses our credentials: try again
    ├── EngineRefused       -32603  Temporal refused the request itself: trying again is useless
    ├── NoWorkerForCall     -32603  a caller that waits for a result waits for nothing: nobody works on the tool's queue
    └── CallTooLong         -32603  a caller has waited for a result as long as this deployment lets it
        └── CallGoesOn      -32603  and may go on waiting
    NoView                  a query gave no view; never leaves the reader
    ├── Busy                another replica's query or a workflow task is in the way: describe again
    ├── NotOpen             the run closed, moved on or was paused: describe again
    ├── NoWorker            nobody answered in time
    └── NoUsableView        the workflow has no such query, or its answer is not a view

An outage must never read as -32602: a client forgets a task that "does not exist".
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, ClassVar, Final

from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.service import RPCError, RPCStatusCode

from workflows.kit.contract import MAX_PAYLOAD_BYTES

logger = logging.getLogger(__name__)

INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

TOO_MANY_REQUESTS: Final = 429
"""HTTP's own number, for want of one in JSON-RPC: a code of ours has to stay clear of -32768 to -32000."""

RETRY_AFTER_MS: Final = 1000


class BridgeError(Exception):
    """An error that may be shown to a client as it is."""

    code: ClassVar[int]
    message: str
    data: dict[str, Any] | None = None

    def __init__(self) -> None:
        super().__init__(self.message)


class TaskNotFound(BridgeError):
    """No task of this id exists for the one who asks. Carries nothing that could tell the cases apart."""

    code = INVALID_PARAMS
    message = "Task not found"


class NotAllowed(BridgeError):
    """A task of somebody else's that the caller may read, while what was asked is beyond their rights."""

    code = INVALID_PARAMS
    message = "You may read this task, but not do this with it"
    data = {"reason": "not_allowed"}  # noqa: RUF012 - never written to


class TooLarge(BridgeError):
    """A payload that Temporal would refuse."""

    code = INVALID_PARAMS
    message = (
        f"Too large: at most {MAX_PAYLOAD_BYTES} bytes of JSON are accepted; send less, or send a reference to the data"
    )
    data = {"maxBytes": MAX_PAYLOAD_BYTES}  # noqa: RUF012 - never written to


class EngineUnavailable(BridgeError):
    """Temporal did not answer, or not as it should; nothing is known about the task."""

    code = INTERNAL_ERROR
    message = "The task engine cannot be reached; try again"
    data = {"retryAfterMs": RETRY_AFTER_MS}  # noqa: RUF012 - never written to


class EngineRefused(BridgeError):
    """Temporal answered and will not do it, however often it is asked."""

    code = INTERNAL_ERROR
    message = "The task engine refused the request"


class NoWorkerForCall(BridgeError):
    """No worker polls the queue of a tool whose caller waits; its run was cancelled, unless it has a creation key."""

    code = INTERNAL_ERROR
    message = "Nothing is running this tool at the moment; try again"
    data = {"retryAfterMs": RETRY_AFTER_MS}  # noqa: RUF012 - never written to


class CallTooLong(BridgeError):
    """A caller has waited for its result as long as one call may; its run was cancelled."""

    code = INTERNAL_ERROR
    message = (
        "The call took longer than a call may wait here, and was cancelled; a client of MCP 2026-07-28 that declares "
        "the extension io.modelcontextprotocol/tasks gets a task instead of waiting"
    )

    def __init__(self, longest: timedelta) -> None:
        super().__init__()
        self.data = {"reason": "call_too_long", "waitedSeconds": longest.total_seconds()}


class CallGoesOn(CallTooLong):
    """The same for a call with a creation key, whose run goes on."""

    message = (
        "The call takes longer than a call may wait here, and goes on; send it again with the same creation key to go "
        "on waiting, or declare the extension io.modelcontextprotocol/tasks to get a task"
    )


class NoView(Exception):
    """A query that gave no view."""


class Busy(NoView):
    """Something else occupies the workflow for a moment."""


class NotOpen(NoView):
    """The run is not running any more, or paused."""


class NoWorker(NoView):
    """No worker answered within the time for it."""


class NoUsableView(NoView):
    """A worker answered, but with an error or with something that is not a view."""


_REFUSED: Final = frozenset({
    RPCStatusCode.INVALID_ARGUMENT,
    RPCStatusCode.ALREADY_EXISTS,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.OUT_OF_RANGE,
    RPCStatusCode.UNIMPLEMENTED,
})  # fmt: skip

_SIZE_WORDS: Final = ("size exceeds", "larger than max", "message too large")
"""Temporal names size limits in its messages only: "Blob data size exceeds limit.", "Memo size exceeds limit.", and
gRPC's "received message after decompression larger than max" as RESOURCE_EXHAUSTED, the status of an overload."""

_CONNECT_FAILED: Final = "Failed client connect"
"""A lazy client that cannot connect raises a bare RuntimeError with this text."""


def translate(error: RPCError, operation: str) -> BridgeError:
    """What a client may know about `error`; the rest is logged, except for an unknown id, which is no news."""
    text = error.message.lower()
    result: BridgeError
    if error.status is RPCStatusCode.NOT_FOUND and not is_namespace_missing(error):
        return TaskNotFound()
    if error.status in (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.RESOURCE_EXHAUSTED) and any(
        words in text for words in _SIZE_WORDS
    ):
        result = TooLarge()
    elif error.status in _REFUSED:
        result = EngineRefused()
    else:
        result = EngineUnavailable()
    logger.warning(
        "engine.error",
        extra={
            "operation": operation,
            "grpc_status": error.status.name,
            "detail": error.message,
            "shown": type(result).__name__,
        },
    )
    return result


def is_connect_failure(error: RuntimeError) -> bool:
    """Whether `error` is a lazy client's failure to connect."""
    return str(error).startswith(_CONNECT_FAILED)


def is_namespace_missing(error: RPCError) -> bool:
    """Whether it is the namespace that was not found, which says nothing about a task."""
    if any(detail.Is(NamespaceNotFoundFailure.DESCRIPTOR) for detail in error.grpc_status.details):
        return True
    return not error.grpc_status.details and error.message.lower().startswith("namespace ")
