"""Continue-as-new at a checkpoint: nothing of the task changes but the run id."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.conftest import Tasks
from tests.kit.test_questions import accept, parked
from tests.support import eventually
from workflows.kit.contract import TASK_MEMO, VIEW_MEMO

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_answers_and_keys_survive_many_rollovers(tasks: Tasks) -> None:
    run = await tasks.start("kit_loop", steps=30)
    first = await run.handle.describe()
    keys: list[str] = []
    for number in range(30):

        async def fresh() -> str | None:
            new = [key for key in (await run.view()).get("inputRequests", {}) if key not in keys]
            return new[0] if new else None

        key = await eventually(fresh, what=f"question {number}")
        keys.append(key)
        await run.update({key: accept(confirm=number % 3 == 0)})
    result = await run.result()
    assert result["structuredContent"]["answers"] == [number % 3 == 0 for number in range(30)]
    assert len(set(keys)) == 30
    last = await run.handle.describe()
    assert last.run_id != first.run_id
    assert (await last.memo())[TASK_MEMO] == (await first.memo())[TASK_MEMO]


async def test_an_open_question_keeps_its_key_and_its_answer_over_rollovers(tasks: Tasks) -> None:
    run = await tasks.start("kit_loop_open")
    (key,) = await parked(run)
    changed_at = (await run.view())["changedAt"]
    first = (await run.handle.describe()).run_id

    async def rolled_over() -> bool:
        return (await run.handle.describe()).run_id != first

    await eventually(rolled_over, what="a rollover")
    assert list(await parked(run)) == [key]
    assert (await run.view())["changedAt"] == changed_at
    await asyncio.gather(*(run.update({key: accept(confirm=value)}) for value in (True, True, True)))
    assert (await run.result())["structuredContent"]["stopped"] is True


async def test_a_run_that_continued_before_its_handle_was_given_still_waits_for_it(tasks: Tasks) -> None:
    run = await tasks.start("kit_loop", steps=100, handle_awaited=True, answer_window_ms=4000)
    first = (await run.handle.describe()).run_id
    keys = set[str]()
    while (await run.handle.describe()).run_id == first:

        async def fresh() -> str | None:
            return next((key for key in (await run.view()).get("inputRequests", {}) if key not in keys), None)

        key = await eventually(fresh, what="a question")
        keys.add(key)
        await run.update({key: accept(confirm=True)})
    assert (await run.failure()).type == "mcp.Expired"


async def test_an_answer_that_meets_the_workflow_task_of_a_rollover_is_published_with_it(tasks: Tasks) -> None:
    """Temporal fails that workflow task, and then shows the timer that led to it and the answer at once."""
    run = await tasks.start("kit_answered_rollover")
    first = (await run.handle.describe()).run_id
    await eventually(run.in_slow_workflow_task, what="the workflow task of the rollover")
    await run.update({"first": accept(confirm=True)})

    async def parked_again() -> bool:
        described = await run.handle.describe()
        return described.run_id != first and not described.raw_description.HasField("pending_workflow_task")

    await eventually(parked_again, what="the next run, parked")
    snapshot = (await run.memo())[VIEW_MEMO]
    assert list(snapshot["inputRequests"]) == ["second"]
    assert snapshot == await run.view()
    await run.update({"second": accept(confirm=True)})
    await run.result()
