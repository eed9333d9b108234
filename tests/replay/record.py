"""`python -m tests.replay.record [NAME…]`: record the histories of this folder anew, or those of the names alone,
against a Temporal of its own.

A recorded history is a promise to the tasks that were running when it was made; recording anew gives the promise up, so
it is a deliberate act: only together with a change of the tools here, or to add a way of ending.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from bridge.dev_server import temporal_binary
from tests.cases.client import accept
from tests.replay.tools import ACTIVITIES, TASKS
from tests.support import eventually
from workflows.kit.contract import (
    SEARCH_ATTRIBUTES,
    TASK_MEMO,
    UPDATE_SIGNAL,
    VIEW_QUERY,
    Actor,
    Principal,
    TaskMemo,
    UpdateSignal,
)

HISTORIES: Final = Path(__file__).parent / "histories"
QUEUE: Final = "replay"
SUGGEST_CONTINUE_AS_NEW: Final = 40
MACHINE_FIELDS: Final = frozenset({"identity", "stackTrace", "binaryChecksum"})
"""Members of a history that may name a machine or its folders, and mean nothing to a replay."""

Handle = WorkflowHandle[Any, Any]
Drive = Callable[[Handle], Awaitable[None]]


async def questions(handle: Handle, count: int, without: frozenset[str] = frozenset()) -> list[str]:
    """The keys of the open questions, once there are `count` besides those in `without`."""

    async def asked() -> list[str] | None:
        view = await handle.query(VIEW_QUERY, result_type=dict[str, Any])
        keys = [key for key in view.get("inputRequests", {}) if key not in without]
        return keys if len(keys) == count else None

    return await eventually(asked, what=f"{count} questions")


async def respond(handle: Handle, responses: Mapping[str, Any], actor: Actor | None = None) -> None:
    """Send answers."""
    await handle.signal(UPDATE_SIGNAL, UpdateSignal(responses=dict(responses), actor=actor).to_json())


async def ended(handle: Handle) -> None:
    """Wait for the end, whichever it is."""
    try:
        await handle.result()
    except WorkflowFailureError:
        return


async def answered(handle: Handle) -> None:
    """Answer the first question, then one of the next two, then the other, each more than once."""
    (first,) = await questions(handle, 1)
    await respond(handle, {first: accept(text="1"), "unknown": accept(text="x")})
    second, third = await questions(handle, 2)
    await respond(handle, {third: accept(text="3"), first: accept(text="late")})
    await respond(handle, {third: accept(text="too late"), second: accept(text="2")})
    await ended(handle)


async def declined(handle: Handle) -> None:
    (first,) = await questions(handle, 1)
    await respond(handle, {first: {"action": "decline"}})
    await ended(handle)


async def cancelled(handle: Handle) -> None:
    """Cancel once a first step is on its way."""

    async def begun() -> bool:
        return (await handle.describe()).history_length >= 5

    await eventually(begun, what="the first step")
    await handle.cancel(reason="somebody")
    await handle.cancel(reason="somebody")
    await ended(handle)


async def cancelled_parked(handle: Handle) -> None:
    await questions(handle, 1)
    await cancelled(handle)


async def parked(handle: Handle) -> None:
    """Leave it with one of two questions answered."""
    (first,) = await questions(handle, 1)
    await respond(handle, {first: accept(text="1")})
    second, _ = await questions(handle, 2)
    await respond(handle, {second: accept(text="2")})
    await questions(handle, 1)


async def before(handle: Handle) -> None:
    await respond(handle, {(await questions(handle, 1))[0]: accept(text="me")})
    await ended(handle)


async def looped(handle: Handle) -> None:
    """Answer until the run has continued as new, then stop it."""
    seen: frozenset[str] = frozenset({"stop"})
    for _ in range(12):
        keys = await questions(handle, 1, without=seen)
        seen |= set(keys)
        await respond(handle, {keys[0]: accept(text="more")})
    keys = await questions(handle, 1, without=seen)
    await respond(handle, {"stop": accept(text="enough"), keys[0]: accept(text="last")})
    await ended(handle)


async def approved(handle: Handle) -> None:
    """Let the owner approve, which is ignored, and somebody else once the run has continued as new."""
    owner, boss = (Actor(issuer="local", subject=subject, channel="http") for subject in ("local", "boss"))
    (key,) = await questions(handle, 1)
    await respond(handle, {key: accept(approve=True)}, owner)

    async def continued() -> bool:
        return (await handle.describe()).run_id != handle.first_execution_run_id

    await eventually(continued, what="the next run")
    await respond(handle, {key: accept(approve=True)}, owner)
    await respond(handle, {key: accept(approve=True, note="fine")}, boss)
    await respond(handle, {key: {"action": "decline"}}, boss)
    await ended(handle)


Way = tuple[str, str, Drive, Mapping[str, Any]]
"""The tool, its way, who drives it to its end, and what its memo says."""

STARTED_BEFORE: Final[Mapping[str, Way]] = {
    "completed": ("replay_work", "", ended, {}),
    "failed": ("replay_work", "failed", ended, {}),
    "tool_error": ("replay_work", "tool_error", ended, {}),
    "bug": ("replay_work", "bug", ended, {}),
    "cancelled": ("replay_cancel", "", cancelled, {}),
    "cancelled_but_completed": ("replay_cancel", "completed", cancelled, {}),
    "cancelled_but_last_step_finished": ("replay_cancel", "last_step_finishes", cancelled, {}),
    "cancelled_but_failed": ("replay_cancel", "failed", cancelled, {}),
    "cancelled_parked": ("replay_ask", "", cancelled_parked, {}),
    "lifetime_expired": ("replay_cancel", "", ended, {"lifetime_ms": 500}),
    "answered": ("replay_ask", "", answered, {}),
    "declined": ("replay_ask", "", declined, {}),
    "deadline": ("replay_ask", "deadline", ended, {}),
    "answer_window_expired": ("replay_ask", "", ended, {"delivery": "result", "answer_window_ms": 500}),
    "parked": ("replay_ask", "", parked, {}),
    "asked_before_handle": ("replay_before", "", before, {"answer_window_ms": 60_000}),
    "continued": ("replay_loop", "", looped, {"lifetime_ms": 3_600_000}),
    "approved": ("replay_approve", "", approved, {}),
}
"""By name, as runs were started before they published every change of their view."""

CLOSES: Final[Mapping[str, Way]] = {
    **STARTED_BEFORE,
    **{
        f"{name}_published": (tool, way, drive, {**memo, "publish_views": True})
        for name, (tool, way, drive, memo) in STARTED_BEFORE.items()
    },
}
"""All of them, and the same as runs are started now."""


async def record(client: Client, name: str) -> None:
    """Write the history of one way of ending; of a task that continued as new, every run's."""
    tool, way, drive, memo = CLOSES[name]
    fields: dict[str, Any] = {
        "tool": tool,
        "owner": Principal(issuer="local", subject="local"),
        "arguments_digest": "0",
        "created_at": datetime.now(UTC),
        "era": "2026-07-28",
        "client_capabilities": {"elicitation": {}},
        "delivery": "task",
        **memo,
    }
    handle = await client.start_workflow(
        tool,
        {"way": way},
        id=f"replay-{uuid.uuid4().hex}",
        task_queue=QUEUE,
        memo={TASK_MEMO: TaskMemo(**fields).to_json()},
    )
    await drive(handle)
    run_id: str | None = handle.first_execution_run_id
    number = 0
    while run_id:
        history = await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()
        last = history.events[-1]
        run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id or None
        suffix = f".{number}" if run_id or number else ""
        text = json.dumps(portable(json.loads(history.to_json())), indent=1)
        (HISTORIES / f"{name}{suffix}.json").write_text(text + "\n")
        number += 1


def portable(value: Any) -> Any:
    """`value` without what may name a machine."""
    if isinstance(value, dict):
        return {key: "" if key in MACHINE_FIELDS else portable(item) for key, item in value.items()}
    return [portable(item) for item in value] if isinstance(value, list) else value


async def main() -> None:
    """Record every way of ending, or those that the command line names."""
    names = sys.argv[1:] or list(CLOSES)
    for path in HISTORIES.glob("*.json"):
        if path.name.partition(".")[0] in names:
            path.unlink()
    options = ["--dynamic-config-value", f"limit.historyCount.suggestContinueAsNew={SUGGEST_CONTINUE_AS_NEW}"]
    for attribute in SEARCH_ATTRIBUTES:
        options += ["--search-attribute", f"{attribute}=Keyword"]
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_binary(), dev_server_extra_args=options
    ) as environment:
        address = environment.client.service_client.config.target_host
        client = await Client.connect(address, identity="recorder", data_converter=pydantic_data_converter)
        async with Worker(
            client,
            task_queue=QUEUE,
            workflows=TASKS,
            activities=ACTIVITIES,
            identity="worker",
            workflow_runner=SandboxedWorkflowRunner(
                SandboxRestrictions.default.with_passthrough_modules("workflows.kit")
            ),
        ):
            for name in names:
                await record(client, name)
                sys.stdout.write(f"recorded {name}\n")


if __name__ == "__main__":
    asyncio.run(main())
