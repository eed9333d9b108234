"""The two ways a tool may fail on purpose; everything else is a bug.

    ApplicationError
    ├── ToolError       the model is told: the task is `completed`, its result has `isError: true`
    │   ├── Declined    a person declined, cancelled or did not answer in time
    │   └── Unapproved  an approval does not cover what was about to be done
    └── JsonRpcError    the call itself failed: the task is `failed` with exactly this JSON-RPC error

Both are Temporal application failures, so they may be raised in workflows and in activities alike, and never retried
(Tasks extension, "Task Execution Errors").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from temporalio.exceptions import ApplicationError

from .contract import JSONRPC_ERROR, TOOL_ERROR, cut


class ToolError(ApplicationError):
    """An expected failure that the model should read, e.g. a record that does not exist.

    `message` is shown as it is (cut at `MAX_MESSAGE_CHARS`); `result` may be a whole CallToolResult to return instead
    of it.
    """

    def __init__(self, message: str, *, result: Mapping[str, Any] | None = None) -> None:
        """Build the failure; see the class."""
        details = () if result is None else (dict(result),)
        super().__init__(cut(message), *details, type=TOOL_ERROR, non_retryable=True)


class Declined(ToolError):
    """A question that got no acceptance.

    `action` is what was answered, `decline` or `cancel`; `expired` is true when nobody answered before the deadline.
    `note` is what a person who did not approve said about it.
    """

    def __init__(self, action: Literal["decline", "cancel"], *, expired: bool = False, note: str = "") -> None:
        """Build the failure; see the class."""
        self.action = action
        self.expired = expired
        self.note = note
        if expired:
            message = "Nobody answered the question in time."
        elif action == "decline":
            message = "The question was declined."
        else:
            message = "The question was cancelled."
        super().__init__(message)


class Unapproved(ToolError):
    """An approval that is for something else, or was used before. Raise it before the side effect; say what was, or
    was not, done.
    """


class JsonRpcError(ApplicationError):
    """A JSON-RPC error as the outcome: the task is `failed`, its `error` is exactly `code`, `message` and `data`."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        """Build the failure; see the class."""
        detail = {"code": code, "message": cut(message)}
        if data is not None:
            detail["data"] = data
        super().__init__(cut(message), detail, type=JSONRPC_ERROR, non_retryable=True)
