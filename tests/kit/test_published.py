"""A task publishes every change of its view, in the workflow task that brings it, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.converter import JSONPlainPayloadConverter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tests.kit.conftest import Run, Tasks
from tests.kit.reporting import Report
from tests.kit.test_questions import accept, parked
from tests.support import eventually
from workflows.kit.contract import VIEW_MEMO

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def published(run: Run) -> list[dict[str, Any]]:
    """The views in the history of the latest run."""
    history = await run.handle.fetch_history()
    fields = [
        event.workflow_properties_modified_event_attributes.upserted_memo.fields
        for event in history.events
        if event.HasField("workflow_properties_modified_event_attributes")
    ]
    return [JSONPlainPayloadConverter().from_payload(view[VIEW_MEMO]) for view in fields if VIEW_MEMO in view]


async def many(run: Run, count: int) -> list[dict[str, Any]]:
    """The views, once so many are there and nothing is pending."""

    async def there() -> list[dict[str, Any]] | None:
        described = await run.handle.describe()
        views = await published(run)
        return None if described.raw_description.HasField("pending_workflow_task") or len(views) < count else views

    return await eventually(there, what=f"{count} published views")


async def next_run(run: Run) -> None:
    """Wait until it has continued as new, and the next run is at rest."""

    async def at_rest() -> bool:
        described = await run.handle.describe()
        started = described.run_id != run.handle.first_execution_run_id and described.history_length > 3
        return started and not described.raw_description.HasField("pending_workflow_task")

    await eventually(at_rest, what="the next run")


def reported(view: dict[str, Any]) -> list[float]:
    return [report["progress"] for report in view.get("progress", [])]


async def test_the_first_workflow_task_publishes_a_task_that_asks_nothing(tasks: Tasks) -> None:
    run = await tasks.start("kit_report", "nothing")
    (view,) = await many(run, 1)
    assert view == await run.view()
    assert (view["status"], view["published"], "progress" in view) == ("working", True, False)


async def test_a_question_of_the_first_workflow_task_is_all_that_it_publishes(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "one")
    (view,) = await many(run, 1)
    assert (list(view["inputRequests"]), view["published"]) == (["sure"], True)


async def test_a_run_that_ends_in_its_first_workflow_task_publishes_nothing(tasks: Tasks) -> None:
    run = await tasks.start("kit_end", "text")
    await run.result()
    assert await published(run) == []


async def test_progress_is_published_by_the_workflow_task_that_brings_it(tasks: Tasks) -> None:
    run = await tasks.start("kit_report", "each_step", steps=3)
    views = await many(run, 4)
    assert [reported(view) for view in views] == [[], [1], [1, 2], [1, 2, 3]]
    assert views[-1] == await run.view()
    assert len({view["changedAt"] for view in views}) == 1


async def test_reports_of_one_workflow_task_are_published_together(tasks: Tasks) -> None:
    run = await tasks.start("kit_report", "at_once", steps=5)
    assert [reported(view) for view in await many(run, 2)] == [[], [1, 2, 3, 4, 5]]


async def test_a_report_and_questions_of_one_workflow_task_are_published_together(tasks: Tasks) -> None:
    run = await tasks.start("kit_report", "with_questions", steps=3)
    await parked(run, 3)
    views = await many(run, 2)
    assert [(reported(view), len(view.get("inputRequests", {}))) for view in views] == [([], 0), ([1], 3)]


async def test_the_end_of_the_phase_before_a_handle_is_published(tasks: Tasks) -> None:
    run = await tasks.start("kit_before_twice")
    await parked(run)
    await run.update({"sure": accept(confirm=True)})
    views = await many(run, 2)
    assert [(view.get("phase"), list(view.get("inputRequests", {}))) for view in views] == [
        ("before_handle", ["sure"]),
        (None, ["really"]),
    ]


async def test_a_view_that_is_too_large_is_left_out_each_time(tasks: Tasks) -> None:
    run = await tasks.start("kit_report", "large", steps=2)

    async def both_reported() -> bool:
        return reported(await run.view()) == [1, 2]

    await eventually(both_reported, what="both reports")
    assert await many(run, 3) == [{"v": 1, "omitted": True}] * 3


async def test_progress_alone_makes_no_view_too_large(tasks: Tasks) -> None:
    run = await tasks.start("kit_report", "long_messages", steps=20)
    (view,) = await many(run, 1)
    assert reported(view) == [17, 18, 19, 20]


async def test_an_answer_to_a_question_that_only_the_run_before_asked_is_published(tasks: Tasks) -> None:
    run = await tasks.start("kit_report", "asked_before_rollover", delivery="result", answer_window_ms=10_000)
    await next_run(run)
    assert list((await run.memo())[VIEW_MEMO]["inputRequests"]) == ["sure"]
    await run.update({"sure": accept(confirm=True)})
    views = await many(run, 2)
    assert [list(view.get("inputRequests", {})) for view in views] == [["sure"], []]
    await asyncio.sleep(11)
    assert (await run.handle.describe()).status is WorkflowExecutionStatus.RUNNING, "its window was closed"
    await run.handle.cancel()


async def test_each_run_publishes_in_its_first_workflow_task(tasks: Tasks) -> None:
    run = await tasks.start("kit_report", "rollover")
    await next_run(run)
    (view,) = await published(run)
    assert view == await run.view()
    assert reported(view) == [1]


async def test_a_report_that_is_made_in_another_run_is_not_published_there(environment: WorkflowEnvironment) -> None:
    async with Worker(
        environment.client, task_queue="unsandboxed", workflows=[Report], workflow_runner=UnsandboxedWorkflowRunner()
    ):
        tasks = Tasks(environment.client, "unsandboxed")
        views = [await many(await tasks.start("kit_report", mode), 1) for mode in ("leaves_one_behind", "finds_one")]
    assert [[reported(view) for view in published] for published in views] == [[[]], [[]]]


async def test_a_run_that_was_started_without_the_word_publishes_its_questions_alone(tasks: Tasks) -> None:
    run = await tasks.start("kit_report", "with_questions", steps=1, publish_views=None)
    await parked(run)
    (view,) = await many(run, 1)
    assert (len(view["inputRequests"]), "published" in view) == (1, False)
