"""Reading a task's history: from which runs, for whom, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest

from bridge.errors import TaskNotFound
from bridge.gateway import HistoryPage
from bridge.histories import MAX_EVENTS, Histories
from bridge.identity import Identity
from tests.gateway.conftest import OWNER, TESTER, Bridge
from tests.support import eventually
from workflows.kit.contract import Principal, timestamp


async def read(bridge: Bridge, task: str, *, owner: Principal = OWNER, max_events: int = MAX_EVENTS) -> dict[str, Any]:
    history, _ = await Histories(bridge.gateway, bridge.reader, max_events=max_events).read(
        task, Identity(principal=owner)
    )
    return history


def events(history: Mapping[str, Any]) -> list[str]:
    return [entry["event"] for entry in history["entries"]]


async def test_a_parked_task_has_a_history_that_is_not_final(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    history, final = await Histories(served.gateway, served.reader).read(task, TESTER)
    assert not final
    assert history["taskId"] == task
    assert history["truncated"] is False
    assert events(history) == ["created", "asked", "status_changed"]


async def test_the_history_of_an_ended_task_ends_as_the_task_is_read(served: Bridge, replica: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    await served.answer(task, "a")
    end = await served.ended(task)
    history, final = await Histories(replica.gateway, replica.reader).read(task, TESTER)
    assert final
    assert events(history) == ["created", "asked", "status_changed", "answered", "status_changed", "ended"]
    assert history["entries"][-1] == {"at": timestamp(end.closed_at), "event": "ended", "status": "completed"}


async def test_the_runs_of_a_task_that_continued_as_new_are_one_history(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]], "continue_after": 1})
    for key in ("a", "b"):
        await served.parked(task, key)
        await served.answer(task, key)
    await served.ended(task)
    history = await read(served, task)
    asked = [entry["key"] for entry in history["entries"] if entry["event"] == "asked"]
    answered = [entry["key"] for entry in history["entries"] if entry["event"] == "answered"]
    assert asked == answered == ["a", "b"]
    assert events(history).count("ended") == 1


async def test_a_stranger_is_answered_as_for_a_task_that_does_not_exist(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    for asked, owner in ((task, Principal(issuer="local", subject="other")), ("task-unknown", OWNER)):
        with pytest.raises(TaskNotFound):
            await read(served, asked, owner=owner)


async def test_a_cancel_is_told_with_the_cancellers_reference(served: Bridge) -> None:
    task = await served.start("mute", {})
    await served.gateway.request_cancel(task, "0123abcd")
    await served.ended(task)
    history = await read(served, task)
    assert events(history) == ["created", "cancel_requested", "ended"]
    assert history["entries"][1]["by"] == "0123abcd"


async def test_a_running_task_that_was_reset_is_told_from_both_runs_without_repeating_what_they_share(
    served: Bridge,
) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]]})
    await served.parked(task, "a")
    await served.answer(task, "a")
    await served.parked(task, "b")
    await served.reset(task, (await served.settled(task)).run_id, 9)  # the workflow task that took the answer

    async def asked_again() -> list[str] | None:
        history = await read(served, task)
        told = [entry.get("key", "") for entry in history["entries"] if entry["event"] in ("asked", "set_back")]
        assert events(history).count("answered") == 1
        times = [entry["at"] for entry in history["entries"]]
        assert times == sorted(times)
        return told if len(told) == 4 else None

    assert await eventually(asked_again, what="the second run's question") == ["a", "b", "", "b"]


async def test_a_run_made_by_resetting_a_closed_task_is_not_told(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    run = await served.settled(task)
    await served.answer(task, "a")
    await served.ended(task)
    before = await read(served, task)
    await served.reset(task, run.run_id, 4)
    assert await read(served, task) == before


async def test_a_long_history_is_cut_and_says_so(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]]})
    for key in ("a", "b"):
        await served.parked(task, key)
        await served.answer(task, key)
    await served.ended(task)
    whole, part = await read(served, task), await read(served, task, max_events=8)
    assert whole["truncated"] is False
    assert part["truncated"] is True
    assert part["entries"][:-1] == whole["entries"][: len(part["entries"]) - 1]
    assert part["entries"][-1] == whole["entries"][-1]
    assert len(part["entries"]) < len(whole["entries"])


async def test_a_history_of_long_questions_is_cut_and_says_so(served: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    task = await served.start("asker", {"rounds": [["a" * 50], ["b"]]})
    await served.parked(task, "a" * 50)
    await served.answer(task, "a" * 50)
    await served.parked(task, "b")
    monkeypatch.setattr("bridge.histories.PAGE_EVENTS", 2)
    history, _ = await Histories(served.gateway, served.reader, max_chars=40).read(task, TESTER)
    assert history["truncated"] is True
    assert [entry["key"] for entry in history["entries"] if entry["event"] == "asked"] == ["a" * 50]


async def test_a_history_is_read_page_by_page(served: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    task = await served.start("asker", {"rounds": [["a"]]})
    await served.parked(task, "a")
    await served.answer(task, "a")
    await served.ended(task)
    whole = await read(served, task)
    pages: list[HistoryPage] = []
    history_page = served.gateway.history_page

    async def counted(*arguments: Any) -> HistoryPage:
        pages.append(await history_page(*arguments))
        return pages[-1]

    monkeypatch.setattr("bridge.histories.PAGE_EVENTS", 2)
    monkeypatch.setattr(served.gateway, "history_page", counted)
    assert await read(served, task) == whole
    assert len(pages) > 2


async def test_a_run_that_retention_deleted_is_missing_and_the_history_says_so(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]], "continue_after": 1})
    await served.parked(task, "a")
    first = (await served.settled(task)).run_id
    await served.answer(task, "a")
    await served.parked(task, "b")
    await served.client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace=served.client.namespace, workflow_execution=WorkflowExecution(workflow_id=task, run_id=first)
        )
    )

    async def gone() -> bool:
        try:
            await served.gateway.describe(task, first)
        except TaskNotFound:
            return True
        return False

    await eventually(gone, what="the deletion of the first run")
    history = await read(served, task)
    assert history["truncated"] is True
    assert [entry["key"] for entry in history["entries"] if entry["event"] == "asked"] == ["b"]
