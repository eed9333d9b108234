"""Questions and answers through the real engine: keys, order, races, deadlines, and what is published when."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from tests.kit.conftest import Run, Tasks
from tests.support import eventually
from workflows.kit.contract import TOOL_ERROR, UPDATE_SIGNAL, VIEW_MEMO, UpdateSignal

pytestmark = pytest.mark.asyncio(loop_scope="session")


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


async def parked(run: Run, count: int = 1) -> dict[str, Any]:
    """The outstanding questions, once there are `count`."""

    async def outstanding() -> dict[str, Any] | None:
        requests = (await run.view()).get("inputRequests", {})
        return requests if len(requests) == count else None

    return await eventually(outstanding, what=f"{count} questions")


async def test_a_question_parks_the_task_and_its_answer_resumes_it(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "one")
    requests = await parked(run)
    assert requests["sure"]["method"] == "elicitation/create"
    assert requests["sure"]["params"]["requestedSchema"]["required"] == ["confirm"]
    await run.update({"sure": accept(confirm=True)})
    assert (await run.result())["structuredContent"] == {"answers": [True]}


async def test_the_memo_snapshot_is_the_querys_own_answer(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "parallel", steps=3)
    keys = list(await parked(run, 3))
    assert (await run.memo())[VIEW_MEMO] == await run.view()
    await run.update({keys[1]: accept(confirm=True)})
    await parked(run, 2)
    assert (await run.memo())[VIEW_MEMO] == await run.view()


async def test_a_partial_answer_leaves_the_others_open_and_each_gets_its_own(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "parallel", steps=3)
    first, second, third = await parked(run, 3)
    await run.update({third: accept(confirm=True)})
    assert list(await parked(run, 2)) == [first, second]
    await run.update({second: accept(confirm=False), first: accept(confirm=True)})
    assert (await run.result())["structuredContent"] == {"answers": [True, False, True]}


async def test_identical_questions_and_repeated_keys_never_share_a_key(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "sequential", steps=4)
    keys: list[str] = []
    for _ in range(4):
        key = await eventually(partial(_new_key, run, keys), what="a new question")
        keys.append(key)
        await run.update({key: accept(confirm=True)})
    await run.result()
    assert keys[0] == "sure"
    assert len(set(keys)) == 4


async def test_the_first_of_racing_answers_is_used(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "sequential", steps=2)
    await parked(run)
    await run.update({"sure": accept(confirm=True)})
    await run.update({"sure": accept(confirm=False)})
    key = await eventually(partial(_new_key, run, ["sure"]), what="the next question")
    await run.update({key: accept(confirm=True)})
    assert (await run.result())["structuredContent"] == {"answers": [True, True]}


async def test_a_late_copy_of_an_answer_does_not_answer_the_next_question(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "sequential", steps=2)
    await parked(run)
    await run.update({"sure": accept(confirm=True)})
    await eventually(lambda: _without(run, "sure"), what="the next question")
    await run.update({"sure": accept(confirm=False)})
    (key,) = await parked(run)
    await run.update({key: accept(confirm=True)})
    assert (await run.result())["structuredContent"] == {"answers": [True, True]}


async def _new_key(run: Run, known: list[str]) -> str | None:
    requests = (await run.view()).get("inputRequests", {})
    return next((key for key in requests if key not in known), None)


async def _without(run: Run, key: str) -> bool:
    requests = (await run.view()).get("inputRequests", {})
    return len(requests) == 1 and key not in requests


@pytest.mark.parametrize(
    "junk",
    [None, 7, "x", [], {}, {"v": 1}, {"v": 2, "responses": {}}, {"responses": []}, {"responses": {"sure": 1}}],
    ids=str,
)
async def test_no_signal_can_break_the_task(tasks: Tasks, junk: Any) -> None:
    run = await tasks.start("kit_ask", "one")
    await parked(run)
    await run.handle.signal("mcp_update", junk)
    await run.handle.signal("mcp_update", args=[junk, "and", "more"])
    await run.handle.signal("mcp_update", args=[])
    await run.update({"sure": accept(confirm="yes")})
    await run.update({"sure": accept(confirm=True), "unknown": accept(confirm=True)})
    assert (await run.result())["structuredContent"] == {"answers": [True]}


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("content", [..., None, {}, {"name": 5}], ids=str)
async def test_declining_needs_no_content_and_ends_the_question(tasks: Tasks, action: str, content: Any) -> None:
    run = await tasks.start("kit_ask", "one")
    await parked(run)
    response = {"action": action} if content is ... else {"action": action, "content": content}
    await run.update({"sure": response})
    failure = await run.failure()
    assert failure.type == TOOL_ERROR
    assert action in failure.message


async def test_a_validator_of_the_authors_asks_again_under_a_new_key_saying_why(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "validated")
    await parked(run)
    await run.update({"order": accept(size="s", count=3)})
    await eventually(lambda: _without(run, "order"), what="the question again")
    ((key, request),) = (await parked(run)).items()
    assert "must be even" in request["params"]["message"]
    await run.update({key: accept(size="s", count=4)})
    assert (await run.result())["structuredContent"] == {"answers": ["s", 4]}


@pytest.mark.parametrize(("mode", "answers"), [("deadline", ["decline", True]), ("default", [False])])
async def test_a_deadline_without_an_answer_takes_its_declared_outcome(
    tasks: Tasks, mode: str, answers: list[Any]
) -> None:
    assert (await (await tasks.start("kit_ask", mode)).result())["structuredContent"] == {"answers": answers}


async def test_a_choice_offers_its_options_by_title(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "choice")
    request = (await parked(run))["which"]
    assert request["params"]["requestedSchema"]["properties"]["choice"]["oneOf"][1] == {
        "const": "b",
        "title": "The second",
    }
    await run.update({"which": accept(choice="c")})
    await run.update({"which": accept(choice="b")})
    assert (await run.result())["structuredContent"] == {"answers": ["b"]}


async def test_the_raw_form_asks_anything_the_client_declared(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "sampled", client_capabilities={"sampling": {}})
    (key,) = await parked(run)
    answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}
    await run.update({key: answer})
    assert (await run.result())["structuredContent"] == {"answers": [answer]}


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}, {"elicitation": None}], ids=str)
async def test_a_client_is_never_asked_what_it_did_not_declare(tasks: Tasks, capabilities: dict[str, Any]) -> None:
    failure = await (await tasks.start("kit_ask", "one", client_capabilities=capabilities)).failure()
    assert failure.type == TOOL_ERROR
    assert "elicitation" in failure.message


async def test_an_offered_answer_is_taken_by_the_first_question_of_that_name(tasks: Tasks) -> None:
    offer = UpdateSignal(responses={"sure": accept(confirm=True), "other": 1}, offered=True)
    run = await tasks.start("kit_ask", "sequential", steps=2, signal=offer)
    ((key, _),) = (await parked(run)).items()
    assert key != "sure"
    await run.update({key: accept(confirm=False)})
    assert (await run.result())["structuredContent"] == {"answers": [True, False]}


async def test_an_answer_that_was_not_offered_is_ignored_before_its_question(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "one", signal=UpdateSignal(responses={"sure": accept(confirm=True)}))
    assert list(await parked(run)) == ["sure"]
    await run.handle.cancel()


async def test_the_phase_before_the_handle_ends_with_its_answer(tasks: Tasks) -> None:
    run = await tasks.start("kit_before")
    await parked(run)
    assert (await run.view())["phase"] == "before_handle"
    await run.update({"sure": accept(confirm=True)})

    async def handed_over() -> bool:
        return "phase" not in await run.view()

    await eventually(handed_over, what="the end of the phase")
    assert (await run.result())["content"][0]["text"] == "True"


async def test_a_run_without_a_handle_ends_when_nobody_answers(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "one", delivery="result", answer_window_ms=500)
    assert (await run.failure()).type == "mcp.Expired"


async def test_each_round_renews_the_answer_window(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "sequential", steps=3, delivery="result", answer_window_ms=3000)
    for _ in range(3):
        (key,) = await parked(run)
        await asyncio.sleep(1.2)
        await run.update({key: accept(confirm=True)})
        await eventually(partial(_moved_on, run, key), what="the answer")
    assert len((await run.result())["structuredContent"]["answers"]) == 3


async def _moved_on(run: Run, key: str) -> bool:
    return key not in (await run.view()).get("inputRequests", {})


async def test_a_run_whose_handle_is_never_given_ends_when_nobody_answers(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "one", handle_awaited=True, answer_window_ms=500)
    assert (await run.failure()).type == "mcp.Expired"


async def test_a_run_whose_handle_is_given_waits_for_its_answer(tasks: Tasks) -> None:
    run = await tasks.start("kit_ask", "one", handle_awaited=True, answer_window_ms=1000)
    (key,) = await parked(run)
    await run.handle.signal(UPDATE_SIGNAL, UpdateSignal(responses={}, handle=True).to_json())
    await asyncio.sleep(1.5)
    await run.update({key: accept(confirm=True)})
    assert (await run.result())["structuredContent"] == {"answers": [True]}


async def test_a_question_after_the_phase_before_a_handle_waits_no_longer_than_its_window(tasks: Tasks) -> None:
    run = await tasks.start("kit_before_twice", handle_awaited=True, answer_window_ms=1000)
    (key,) = await parked(run)
    await run.update({key: accept(confirm=True)})
    assert (await run.failure()).type == "mcp.Expired"
