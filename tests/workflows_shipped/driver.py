"""Drives one task over the contract alone, as a bridge would: memo at the start, the query, the signal, Temporal's
cancel."""

from __future__ import annotations

import json
import os
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import BaseModel
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError

from tests.support import eventually
from workflows.kit.contract import TASK_MEMO, UPDATE_SIGNAL, VIEW_QUERY, Actor, Principal, TaskMemo, UpdateSignal

HISTORIES: Final = Path(__file__).parent / "histories"
RECORD: Final = "RECORD_HISTORIES"
"""Set to 1, every test that names its history writes it: the histories that the replay tests read."""

OWNER: Final = Principal(issuer="local", subject="tester")
TESTER: Final = Actor(issuer="local", subject="tester", channel="http")
"""The owner of every task, who answers what does not say who may."""


class Run:
    """One started task."""

    def __init__(self, handle: WorkflowHandle[Any, Any]) -> None:
        self.handle = handle

    async def view(self) -> dict[str, Any]:
        """The live view."""
        view: dict[str, Any] = await self.handle.query(VIEW_QUERY, result_type=dict[str, Any])
        return view

    async def questions(self, count: int = 1, *, other_than: str = "") -> dict[str, dict[str, Any]]:
        """The params of the open questions by key, once there are `count`; none of them is `other_than`."""

        async def asked() -> dict[str, Any] | None:
            requests = (await self.view()).get("inputRequests", {})
            return requests if len(requests) == count and other_than not in requests else None

        requests = await eventually(asked, what=f"{count} questions")
        return {key: request["params"] for key, request in requests.items()}

    async def question(self, *, other_than: str = "") -> tuple[str, dict[str, Any]]:
        """The one open question: its key and params."""
        ((key, params),) = (await self.questions(other_than=other_than)).items()
        return key, params

    async def respond(self, responses: dict[str, Any], actor: Actor = TESTER) -> None:
        """Send raw answers."""
        signal = UpdateSignal(responses=responses, actor=actor, at=datetime.now(UTC))
        await self.handle.signal(UPDATE_SIGNAL, signal.to_json())

    async def accept(self, key: str, actor: Actor = TESTER, **content: Any) -> None:
        """Answer one question."""
        await self.respond({key: {"action": "accept", "content": content}}, actor)

    async def choose(self, label: str, *, other_than: str = "") -> str:
        """Answer the open question with the option whose label starts so; returns the question's key."""
        key, params = await self.question(other_than=other_than)
        await self.accept(key, choice=option(params, label))
        return key

    async def active(self, activity: str) -> None:
        """Wait until an activity of this type is running."""

        async def running() -> bool:
            return any(pending.HasField("last_started_time") for pending in await self._pending(activity))

        await eventually(running, what=f"{activity} to run")

    async def asked_to_stop(self, activity: str) -> None:
        """Wait until the task's cancel has gone on to its running activity of this type."""

        async def stopping() -> bool:
            states = {pending.state for pending in await self._pending(activity)}
            return PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED in states

        await eventually(stopping, what=f"{activity} to be asked to stop")

    async def _pending(self, activity: str) -> list[PendingActivityInfo]:
        described = await self.handle.describe()
        return [p for p in described.raw_description.pending_activities if p.activity_type.name == activity]

    async def result(self, record: str | None = None) -> dict[str, Any]:
        """The structured result of a task that completes."""
        returned = await self.handle.result()
        await self._record(record)
        assert not returned.get("isError")
        content: dict[str, Any] = returned["structuredContent"]
        return content

    async def failure(self, record: str | None = None) -> ApplicationError:
        """The application failure of a task that fails: raised by the workflow, or by an activity of it."""
        with pytest.raises(WorkflowFailureError) as caught:
            await self.handle.result()
        await self._record(record)
        cause: BaseException | None = caught.value.cause
        if isinstance(cause, ActivityError):
            cause = cause.cause
        assert isinstance(cause, ApplicationError), cause
        return cause

    async def cancelled(self, record: str | None = None) -> None:
        """Wait for the end of a task that ends cancelled."""
        with pytest.raises(WorkflowFailureError) as caught:
            await self.handle.result()
        assert isinstance(caught.value.cause, CancelledError | ActivityError)
        assert (await self.handle.describe()).status is WorkflowExecutionStatus.CANCELED
        await self._record(record)

    async def history(self) -> str:
        """The history of the last run, as JSON."""
        return (await self.handle.fetch_history()).to_json()

    async def _record(self, name: str | None) -> None:
        if name is not None and os.environ.get(RECORD) == "1":
            HISTORIES.mkdir(exist_ok=True)
            (HISTORIES / f"{name}.published.json").write_text(_portable(await self.history()))


class Driver:
    """Starts tasks on one queue."""

    def __init__(self, client: Client, queue: str) -> None:
        self.client = client
        self.queue = queue

    async def start(self, tool: str, arguments: BaseModel, **changes: Any) -> Run:
        """Start a task that holds a handle, for a client that can be asked; `changes` are of its memo."""
        fields: dict[str, Any] = {
            "tool": tool,
            "owner": OWNER,
            "arguments_digest": "0",
            "created_at": datetime.now(UTC),
            "era": "2026-07-28",
            "client_capabilities": {"elicitation": {}},
            "delivery": "task",
            "publish_views": True,
        }
        memo = TaskMemo(**fields | changes)
        handle = await self.client.start_workflow(
            tool,
            arguments.model_dump(mode="json"),
            id=f"shipped-{uuid.uuid4().hex}",
            task_queue=self.queue,
            memo={TASK_MEMO: memo.to_json()},
        )
        return Run(handle)


def option(params: dict[str, Any], label: str) -> str:
    """The value of the option of a choice whose label starts with `label`."""
    options = params["requestedSchema"]["properties"]["choice"]["oneOf"]
    (value,) = [option["const"] for option in options if option["title"].startswith(label)]
    return str(value)


def _portable(history: str) -> str:
    """Without what names a machine and says nothing to a replay."""
    text = re.sub(r'"(stackTrace|identity|binaryChecksum)": "(?:[^"\\]|\\.)*"', r'"\1": ""', history)
    return json.dumps(json.loads(text), indent=1) + "\n"
