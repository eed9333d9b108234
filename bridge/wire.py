"""Tasks as the Tasks extension spells them: flat, `ttlMs` always there, everything optional absent rather than null."""

from __future__ import annotations

from typing import Any

from bridge.status import Live, TaskState, Terminal
from workflows.kit.contract import TaskMemo, timestamp


def created_task(task_id: str, memo: TaskMemo, poll_interval_ms: int) -> dict[str, Any]:
    """The CreateTaskResult of a run that was just started (`resultType: "task"`, and on nothing else)."""
    created_at = timestamp(memo.created_at)
    return {
        "resultType": "task",
        "taskId": task_id,
        "status": "working",
        "createdAt": created_at,
        "lastUpdatedAt": created_at,
        "ttlMs": memo.lifetime_ms,
        "pollIntervalMs": poll_interval_ms,
    }


def detailed_task(state: TaskState) -> dict[str, Any]:
    """The DetailedTask of `state`: what tasks/get answers, less its `resultType`."""
    task: dict[str, Any] = {
        "taskId": state.task_id,
        "status": state.status,
        "createdAt": timestamp(state.created_at),
        "lastUpdatedAt": timestamp(state.last_updated_at),
        "ttlMs": state.ttl_ms,
    }
    if state.status_message is not None:
        task["statusMessage"] = state.status_message
    match state:
        case Live():
            if state.poll_interval_ms is not None:
                task["pollIntervalMs"] = state.poll_interval_ms
            if state.input_requests is not None:
                task["inputRequests"] = state.input_requests
        case Terminal():
            if state.result is not None:
                task["result"] = state.result
            if state.error is not None:
                task["error"] = state.error
    return task
