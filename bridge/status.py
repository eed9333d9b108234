"""What a task looks like to a client: the status table, as pure functions.

`outcome` is the table for closed runs, first match wins, and each row is a test. A terminal answer is made of the
close event and of the memo written at the start, never of the moment it is read, so that every replica gives the same
bytes at any time (the retention, which sets `ttl_ms`, is the namespace's).

`failed` means that the call itself ended in a JSON-RPC error; a tool that fails at its work is `completed` with
`isError: true`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from bridge.closed import Closed, Failure
from bridge.errors import INTERNAL_ERROR
from workflows.kit.contract import (
    BUG,
    EXPIRED,
    JSONRPC_ERROR,
    TOOL_ERROR,
    LiveStatus,
    Progress,
    TaskMemo,
    TaskView,
    cut,
)

_CONTENT_TYPES: Final = frozenset({"text", "image", "audio", "resource_link", "resource"})


@dataclass(frozen=True, slots=True)
class Live:
    """A task that may still change. `last_updated_at` moves with the status and the questions, not with progress.

    `taken_up` is false until a worker has completed a first step of it. `questions_known` is false when it may be
    asking something that nobody could be asked about.
    """

    task_id: str
    memo: TaskMemo
    created_at: datetime
    last_updated_at: datetime
    ttl_ms: int | None
    status: LiveStatus
    status_message: str | None = None
    input_requests: dict[str, dict[str, Any]] | None = None
    poll_interval_ms: int | None = None
    progress: tuple[Progress, ...] = ()
    phase: Literal["before_handle"] | None = None
    taken_up: bool = True
    questions_known: bool = True


@dataclass(frozen=True, slots=True)
class Terminal:
    """A task that ended; it never changes again. Exactly one of `result` and `error` is set, neither on `cancelled`."""

    task_id: str
    memo: TaskMemo
    created_at: datetime
    last_updated_at: datetime
    ttl_ms: int
    closed_at: datetime
    status: Literal["completed", "failed", "cancelled"]
    status_message: str | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


TaskState = Live | Terminal


@dataclass(frozen=True, slots=True)
class OutcomeRules:
    """What a tool's declaration says about its ends.

    `declared_errors` are types of application errors that are raised for the model to read, by activities or by the
    workflow itself; `plain_result` says that a result is never a CallToolResult, even where it looks like one.
    """

    declared_errors: frozenset[str] = frozenset()
    plain_result: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of the table. `reference` is set for a bug: the details belong into the log under it."""

    status: Literal["completed", "failed", "cancelled"]
    status_message: str | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    reference: str | None = None


def outcome(closed: Closed, *, task_id: str, run_id: str, cancel_requested: bool, rules: OutcomeRules) -> Outcome:
    """The end of a run as a client sees it."""
    match closed.ending:
        case "completed":
            return Outcome("completed", result=tool_result(closed.result, plain=rules.plain_result))
        case "canceled":
            return Outcome("cancelled", "The task was cancelled")
        case "timed_out":
            return _failed("The task took longer than it may and was ended")
        case "terminated":
            return _failed(f"The task was terminated: {closed.reason}" if closed.reason else "The task was terminated")
        case "failed":
            failure = closed.failure or Failure("other")
            return _failure_outcome(
                failure, task_id=task_id, run_id=run_id, cancel_requested=cancel_requested, rules=rules
            )
        case "continued" | "other":
            return _failed("The task ended in an unknown way")


def _failure_outcome(
    failure: Failure, *, task_id: str, run_id: str, cancel_requested: bool, rules: OutcomeRules
) -> Outcome:
    if failure.kind == "application":
        if failure.type == EXPIRED:
            return _failed(failure.message or "The task expired")
        if failure.type == JSONRPC_ERROR:
            return _json_rpc_error(failure)
        if failure.type == TOOL_ERROR or failure.type in rules.declared_errors:
            return Outcome("completed", result=_tool_error(failure))
    if cancel_requested:
        return _failed("The task failed while stopping")
    if failure.kind in ("activity", "child"):
        origin = failure.origin
        if origin.kind == "application" and origin.type == JSONRPC_ERROR:
            return _json_rpc_error(origin)
        if origin.kind == "application" and _declared(origin, rules.declared_errors):
            return Outcome("completed", result=_tool_error(origin))
    reference = hashlib.sha256(f"{task_id}\0{run_id}".encode()).hexdigest()[:12]
    text = f"The tool failed because of an internal error. Reference: {reference}"
    return Outcome("completed", result=_error_result(text), reference=reference)


def _declared(failure: Failure, declared_errors: frozenset[str]) -> bool:
    """Whether an activity's author meant this error for the model; a plain exception has its class name as type, and
    is a bug.
    """
    if failure.type == BUG:
        return False
    return failure.type in ("", TOOL_ERROR) or failure.type in declared_errors or failure.non_retryable


def _failed(message: str) -> Outcome:
    text = cut(message)
    return Outcome("failed", text, error={"code": INTERNAL_ERROR, "message": text})


def _json_rpc_error(failure: Failure) -> Outcome:
    detail = failure.details[0] if failure.details else None
    if not isinstance(detail, dict):
        return _failed(failure.message or "The task failed")
    code, message = detail.get("code"), detail.get("message")
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(message, str):
        return _failed(failure.message or "The task failed")
    error: dict[str, Any] = {"code": code, "message": cut(message)}
    if "data" in detail:
        error["data"] = detail["data"]
    return Outcome("failed", error["message"], error=error)


def _tool_error(failure: Failure) -> dict[str, Any]:
    if failure.details and _is_call_tool_result(failure.details[0]):
        return {**failure.details[0], "isError": True, "resultType": "complete"}
    return _error_result(cut(failure.message or "The tool failed"))


def _error_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}


def tool_result(value: Any, *, plain: bool = False) -> dict[str, Any]:
    """`value` as a CallToolResult; nothing at all becomes one without content."""
    if not plain and _is_call_tool_result(value):
        return {**value, "resultType": "complete"}
    if value is None:
        return {"content": [], "resultType": "complete"}
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return {"content": [{"type": "text", "text": text}], "structuredContent": value, "resultType": "complete"}


def _is_call_tool_result(value: Any) -> bool:
    content = value.get("content") if isinstance(value, dict) else None
    return isinstance(content, list) and all(
        isinstance(block, dict) and isinstance(block.get("type"), str) and block["type"] in _CONTENT_TYPES
        for block in content
    )


def terminal(task_id: str, memo: TaskMemo, closed: Closed, end: Outcome, retention: timedelta) -> Terminal:
    """The terminal answer: readable until Temporal deletes the run."""
    created_at = utc(memo.created_at)
    kept = closed.at + retention - created_at
    return Terminal(
        task_id=task_id,
        memo=memo,
        created_at=created_at,
        last_updated_at=max(closed.at, created_at),
        ttl_ms=max(1, kept // timedelta(milliseconds=1)),
        closed_at=closed.at,
        status=end.status,
        status_message=end.status_message,
        result=end.result,
        error=end.error,
    )


def live(
    task_id: str,
    memo: TaskMemo,
    view: TaskView | None,
    *,
    heartbeat: Progress | None = None,
    note: str | None = None,
    without: Iterable[str] = (),
    taken_up: bool = True,
    questions_known: bool = True,
) -> Live:
    """A running task. Without a view it is working and nothing more is known.

    `heartbeat` is the newest report of a running activity; `note` takes the status message's place; `without` are
    questions that were answered already. A task that asks nothing is working, whatever its view says.
    """
    created_at = utc(memo.created_at)
    if view is None:
        return Live(
            task_id=task_id,
            memo=memo,
            created_at=created_at,
            last_updated_at=created_at,
            ttl_ms=memo.lifetime_ms,
            status="working",
            status_message=note or _progress_text(heartbeat),
            poll_interval_ms=memo.poll_interval_ms,
            progress=(heartbeat,) if heartbeat else (),
            taken_up=taken_up,
            questions_known=questions_known,
        )
    asked = {key: ask for key, ask in (view.input_requests or {}).items() if key not in set(without)}
    parked = view.status == "input_required" and bool(asked)
    interval = view.poll_interval_ms
    message = note or (None if parked else _progress_text(heartbeat)) or view.status_message
    return Live(
        task_id=task_id,
        memo=memo,
        created_at=created_at,
        last_updated_at=max(utc(view.changed_at), created_at),
        ttl_ms=memo.lifetime_ms,
        status="input_required" if parked else "working",
        status_message=cut(message) if message else None,
        input_requests=asked if parked else None,
        poll_interval_ms=interval if interval and interval > 0 else memo.poll_interval_ms,
        progress=(*(view.progress or ()), *([heartbeat] if heartbeat else ())),
        phase=view.phase,
        taken_up=taken_up,
        questions_known=questions_known,
    )


def utc(moment: datetime) -> datetime:
    """`moment` with an offset; a workflow in another language may leave it out, and means UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _progress_text(heartbeat: Progress | None) -> str | None:
    if heartbeat is None:
        return None
    counted = _number(heartbeat.progress) + ("" if heartbeat.total is None else f"/{_number(heartbeat.total)}")
    return cut(f"{counted} {heartbeat.message}" if heartbeat.message else counted)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else f"{value:g}"
