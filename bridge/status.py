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
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from mcp_types import CallToolResult
from mcp_types.methods import serialize_server_result
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError

from bridge.closed import Closed, Failure
from bridge.describe import utc
from bridge.errors import INTERNAL_ERROR
from workflows.kit.contract import (
    BUG,
    EXPIRED,
    JSONRPC_ERROR,
    MAX_DEPTH,
    TOOL_ERROR,
    Answerer,
    LiveStatus,
    PageForm,
    Progress,
    TaskMemo,
    TaskView,
    cut,
)
from workflows.kit.results import TooDeep

logger = logging.getLogger(__name__)

PARKED_FACTOR: Final = 3
"""How many times the declared poll interval a parked task's is: people are slower than steps, and two of three reads of
a task that waits for them are saved. Not more, because a client may sleep as long as the last state said even after an
answer of its own (ext-tasks does), and somebody waits for the effect then: 3 s with the default of 1 s.
"""

LONGEST_PARKED_MS: Final = 60_000
"""What the factor does not go beyond; a declared interval that is longer stays."""

_CONTENT_TYPES: Final = frozenset({"text", "image", "audio", "resource_link", "resource"})
_CODES: Final = range(-(2**63), 2**63)
"""What a JSON-RPC error's code may be: no client keeps it in more than 64 bits."""


@dataclass(frozen=True, slots=True)
class Live:
    """A task that may still change. `last_updated_at` moves with the status and the questions, not with progress.

    `taken_up` is false until a worker has completed a first step of it. `questions_known` is false when it may be
    asking something that nobody could be asked about. `uncertain`: it is the last known state, since nobody answered.
    `answerers`: who may answer the questions that say it. `page_forms`: what the bridge's pages ask for those that no
    client answers. `awaited`: whom a caller waits for who may answer none.
    """

    task_id: str
    memo: TaskMemo
    created_at: datetime
    last_updated_at: datetime
    ttl_ms: int | None
    status: LiveStatus
    status_message: str | None = None
    input_requests: dict[str, dict[str, Any]] | None = None
    answerers: dict[str, Answerer] | None = None
    page_forms: dict[str, PageForm] | None = None
    awaited: str | None = None
    poll_interval_ms: int | None = None
    progress: tuple[Progress, ...] = ()
    phase: Literal["before_handle"] | None = None
    taken_up: bool = True
    questions_known: bool = True
    uncertain: bool = False


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
            return Outcome("completed", result=tool_result(closed.result, task_id=task_id, plain=rules.plain_result))
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
            return Outcome("completed", result=_tool_error(failure, task_id))
    if cancel_requested:
        return _failed("The task failed while stopping")
    if failure.kind in ("activity", "child"):
        origin = failure.origin
        if origin.kind == "application" and origin.type == JSONRPC_ERROR:
            return _json_rpc_error(origin)
        if origin.kind == "application" and _declared(origin, rules.declared_errors):
            return Outcome("completed", result=_tool_error(origin, task_id))
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
    error: dict[str, Any] = {"code": code if code in _CODES else INTERNAL_ERROR, "message": cut(message)}
    if "data" in detail:
        error["data"] = detail["data"]
    return Outcome("failed", error["message"], error=error)


def _tool_error(failure: Failure, task_id: str) -> dict[str, Any]:
    if failure.details and _looks_like_call_tool_result(failure.details[0]):
        return {**tool_result(failure.details[0], task_id=task_id), "isError": True}
    return _error_result(cut(failure.message or "The tool failed"))


def _error_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}


def tool_result(value: Any, *, task_id: str, plain: bool = False) -> dict[str, Any]:
    """`value` as a CallToolResult; nothing at all becomes one without content, and what is nested deeper than
    `MAX_DEPTH` a tool error. One that only looks like a CallToolResult is shown as any other value, and logged.
    """
    if value is None:
        return {"content": [], "resultType": "complete"}
    if _too_deep(value):
        return _error_result(f"The result is {TooDeep()}.")
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if (clean := _without_lone_surrogates(text)) != text:
        text, value = clean, json.loads(clean)
    if not plain and _looks_like_call_tool_result(value):
        shown = {**value, "resultType": "complete"}
        problem = _call_tool_result_problem(shown)
        if problem is None:
            return shown
        logger.warning("result.malformed", extra={"task_id": task_id, "reason": problem})
    return {"content": [{"type": "text", "text": text}], "structuredContent": value, "resultType": "complete"}


def _looks_like_call_tool_result(value: Any) -> bool:
    content = value.get("content") if isinstance(value, dict) else None
    return isinstance(content, list) and all(
        isinstance(block, dict) and isinstance(block.get("type"), str) and block["type"] in _CONTENT_TYPES
        for block in content
    )


def _call_tool_result_problem(result: dict[str, Any]) -> str | None:
    """Why `result` is no CallToolResult by MCP's own types; None if it is one.

    The SDK's kernel sends what it does not take for one as a success without content, so its word counts as well.
    """
    try:
        CallToolResult.model_validate_json(json.dumps(result), strict=True, by_name=False)
        kept = serialize_server_result("tools/call", LATEST_MODERN_VERSION, result)
    except ValidationError as error:
        return _first_problem(error)
    return None if "content" in kept else "it is an InputRequiredResult as well"


def _first_problem(error: ValidationError) -> str:
    """Where `error` lies and what it is, without the value. A block is tried as each kind of content, and only what is
    wrong with it as the kind that it names tells anything.
    """
    problems = error.errors(include_input=False, include_url=False)
    other_kinds = {problem["loc"][:3] for problem in problems if problem["loc"][3:] == ("type",)}
    first = next((problem for problem in problems if problem["loc"][:3] not in other_kinds), problems[0])
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _too_deep(value: Any) -> bool:
    """Whether `value` is nested deeper than a result may be. What the kit wraps was measured without the wrapping."""
    wrapped = _looks_like_call_tool_result(value) and "structuredContent" in value
    level = [value]
    for _ in range(MAX_DEPTH + (2 if wrapped else 1)):  # by level: recursion is what depth breaks
        level = [child for node in level for child in _children(node)]
    return bool(level)


def _children(node: Any) -> Iterable[Any]:
    return node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


def _without_lone_surrogates(text: str) -> str:
    """`text` with question marks for what is no text, as in messages: strict readers would refuse the whole answer."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


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
            uncertain=note is not None,
        )
    asked = {key: ask for key, ask in (view.input_requests or {}).items() if key not in set(without)}
    parked = view.status == "input_required" and bool(asked)
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
        answerers={key: who for key, who in (view.answerers or {}).items() if key in asked} if parked else None,
        page_forms={key: page for key, page in (view.page_forms or {}).items() if key in asked} if parked else None,
        poll_interval_ms=_poll_interval(memo, view, parked=parked),
        progress=(*(view.progress or ()), *([heartbeat] if heartbeat else ())),
        phase=view.phase,
        taken_up=taken_up,
        questions_known=questions_known,
        uncertain=note is not None,
    )


def _poll_interval(memo: TaskMemo, view: TaskView, *, parked: bool) -> int | None:
    """The view's own, if it has one; else as declared, and longer while a person is waited for.

    Made of the state alone: every replica and every notification say the same.
    """
    if view.poll_interval_ms is not None and view.poll_interval_ms > 0:
        return view.poll_interval_ms
    declared = memo.poll_interval_ms
    if declared is None or not parked:
        return declared
    return max(declared, min(PARKED_FACTOR * declared, LONGEST_PARKED_MS))


def _progress_text(heartbeat: Progress | None) -> str | None:
    if heartbeat is None:
        return None
    counted = _number(heartbeat.progress) + ("" if heartbeat.total is None else f"/{_number(heartbeat.total)}")
    return cut(f"{counted} {heartbeat.message}" if heartbeat.message else counted)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else f"{value:g}"
