"""The one cancel: delivered once, seen once, whatever the awaited step does with it."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import CancelledError

from tests.kit.conftest import Run, Tasks
from tests.kit.test_questions import parked
from tests.support import eventually
from workflows.kit.contract import BUG, EXPIRED, JSONRPC_ERROR, TOOL_ERROR

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def running(run: Run) -> None:
    """Once the first workflow task is over."""

    async def started() -> bool:
        return (await run.handle.describe()).history_length > 4

    await eventually(started, what="the first step")


async def status(run: Run) -> WorkflowExecutionStatus | None:
    return (await run.handle.describe()).status


@pytest.mark.parametrize(
    ("mode", "seen"),
    [
        ("sleep", ["cancelled"]),
        ("shield", ["cancelled"]),
        ("question", ["cancelled"]),
        ("swallow", ["swallowed", "step returned", "went on"]),
        ("TRY_CANCEL", ["cancelled"]),
        ("ABANDON", ["cancelled"]),
        ("WAIT_CANCELLATION_COMPLETED", ["step returned", "cancelled"]),
    ],
)
async def test_the_author_sees_a_cancel_exactly_once(tasks: Tasks, mode: str, seen: list[str]) -> None:
    """A step that returns all the same swallows Temporal's one CancelledError; the kit raises it again at the next
    step.

    Code that catches it has seen it: it is not raised twice, also by a second cancel.
    """
    run = await tasks.start("kit_stop", mode)
    await running(run)
    await run.handle.cancel()
    await run.handle.cancel()
    if mode == "swallow":
        await eventually(lambda: _timers(run, 2), what="the second sleep")
        assert await status(run) == WorkflowExecutionStatus.RUNNING
        await run.handle.terminate()
        return
    assert (await run.result())["structuredContent"] == seen


async def _timers(run: Run, count: int) -> bool:
    history = await run.handle.fetch_history()
    return sum(event.event_type == 17 for event in history.events) >= count


async def test_an_uncaught_cancel_ends_cancelled(tasks: Tasks) -> None:
    run = await tasks.start("kit_unwind", "raise")
    await running(run)
    await run.handle.cancel()
    with pytest.raises(WorkflowFailureError) as caught:
        await run.result()
    assert isinstance(caught.value.cause, CancelledError)
    assert await status(run) == WorkflowExecutionStatus.CANCELED


async def test_a_cancel_may_still_end_completed(tasks: Tasks) -> None:
    run = await tasks.start("kit_unwind", "complete")
    await running(run)
    await run.handle.cancel()
    assert (await run.result())["content"][0]["text"] == "finished anyway"


@pytest.mark.parametrize(("mode", "kind"), [("tool_error", TOOL_ERROR), ("break", BUG)])
async def test_a_cancel_may_still_end_failed(tasks: Tasks, mode: str, kind: str) -> None:
    run = await tasks.start("kit_unwind", mode)
    await running(run)
    await run.handle.cancel()
    assert (await run.failure()).type == kind


async def test_a_cancel_before_the_first_step_ends_cancelled(tasks: Tasks) -> None:
    runs = [await tasks.start("kit_unwind", "raise") for _ in range(10)]
    await asyncio.gather(*(run.handle.cancel() for run in runs))
    for run in runs:
        with pytest.raises(WorkflowFailureError):
            await run.result()
        assert await status(run) == WorkflowExecutionStatus.CANCELED


async def test_a_parked_task_is_cancelled_and_a_late_answer_revives_nothing(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "parallel", steps=2)
    await parked(run, 2)
    await run.handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await run.result()
    assert await status(run) == WorkflowExecutionStatus.CANCELED


@pytest.mark.parametrize("mode", ["raise", "complete", "break"])
async def test_a_lifetime_that_ends_unwinds_the_work_and_expires_the_task(tasks: Tasks, mode: str) -> None:
    run = await tasks.start("kit_unwind", mode, lifetime_ms=300)
    assert (await run.failure()).type == EXPIRED


async def test_a_cancel_that_meets_the_workflow_task_of_a_rollover_is_not_lost(tasks: Tasks) -> None:
    """Temporal fails that workflow task, and then shows the timer that led to it and the cancel at once."""
    run = await tasks.start("kit_slow_rollover")
    first = (await run.handle.describe()).run_id
    await eventually(run.in_slow_workflow_task, what="the workflow task of the rollover")
    await run.handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await run.result()
    assert await status(run) == WorkflowExecutionStatus.CANCELED
    assert (await run.handle.describe()).run_id == first


async def test_a_broken_unwinding_outlives_the_expiry_that_caused_it(tasks: Tasks) -> None:
    failure = await (await tasks.start("kit_end", "unwound_badly", lifetime_ms=300)).failure()
    assert (failure.type, failure.message) == (JSONRPC_ERROR, "rollback broke")


async def test_a_cancel_during_rollover_is_not_lost(tasks: Tasks) -> None:
    """Runs are cancelled at spread moments while they continue as new again and again."""
    runs = [await tasks.start("kit_loop_open", steps=1) for _ in range(8)]
    for number, run in enumerate(runs):
        await asyncio.sleep(0.05 + 0.03 * number)
        await run.handle.cancel()
    for run in runs:
        with pytest.raises(WorkflowFailureError):
            await run.result()
        assert await status(run) == WorkflowExecutionStatus.CANCELED
