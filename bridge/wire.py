"""Tasks as the Tasks extension spells them: flat, `ttlMs` always there, everything optional absent rather than null."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from bridge.status import Live, TaskState, Terminal
from workflows.kit.contract import TaskMemo, timestamp

_written = lru_cache(8192)(timestamp)
"""Most reads find a task unchanged, and its two moments are much of what there is to write."""


def created_task(task_id: str, memo: TaskMemo, state: TaskState | None = None) -> dict[str, Any]:
    """The CreateTaskResult of a run (`resultType: "task"`, and on nothing else): the seed of what tasks/get tells.

    `state` is what is known of it by now; a run that was just started is working.
    """
    interval = state.poll_interval_ms if isinstance(state, Live) else memo.poll_interval_ms
    task = {
        "resultType": "task",
        "taskId": task_id,
        "status": state.status if state else "working",
        "createdAt": _written(memo.created_at),
        "lastUpdatedAt": _written(state.last_updated_at if state else memo.created_at),
        "ttlMs": state.ttl_ms if state else memo.lifetime_ms,
    }
    return task if interval is None else task | {"pollIntervalMs": interval}


def detailed_task(state: TaskState) -> dict[str, Any]:
    """The DetailedTask of `state`: what tasks/get answers, less its `resultType`."""
    task: dict[str, Any] = {
        "taskId": state.task_id,
        "status": state.status,
        "createdAt": _written(state.created_at),
        "lastUpdatedAt": _written(state.last_updated_at),
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
