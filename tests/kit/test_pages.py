"""Questions that are answered on a page, through the real engine: published, carried, answered by the page alone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.kit.conftest import Run, Tasks
from tests.support import eventually
from workflows.kit.contract import PAGE_CHANNEL, TOOL_ERROR, VIEW_MEMO, Actor, PageForm, Pages
from workflows.kit.questions import Questions

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGES: dict[str, Any] = {
    "pages": Pages(url="https://mcp.example/pages"),
    "client_capabilities": {"elicitation": {"url": {}}},
}
CLIENT = Actor(issuer="local", subject="tester", channel="http")
PAGE = CLIENT.model_copy(update={"channel": PAGE_CHANNEL})
YES = {"action": "accept", "content": {"confirm": True}}


async def parked(run: Run) -> dict[str, Any]:
    """The view, once it asks."""

    async def asking() -> dict[str, Any] | None:
        view = await run.view()
        return view if view.get("inputRequests") else None

    return await eventually(asking, what="a question")


async def test_a_question_for_a_page_keeps_key_and_address_over_runs_and_is_answered_there(tasks: Tasks) -> None:
    run = await tasks.start("kit_loop_open", "page", **PAGES)
    view = await parked(run)
    ((key, request),) = view["inputRequests"].items()
    assert request["params"] == {
        "mode": "url",
        "message": "Stop now?",
        "url": f"https://mcp.example/pages/{run.handle.id}/{key}",
    }
    assert view["pageForms"][key]["form"]["required"] == ["confirm"]
    assert (await run.memo())[VIEW_MEMO]["pageForms"] == view["pageForms"]
    first = run.handle.first_execution_run_id

    async def continued() -> bool:
        return (await run.handle.describe()).run_id != first

    await eventually(continued, what="the next run")
    again = await parked(run)
    assert (again["inputRequests"], again["pageForms"]) == (view["inputRequests"], view["pageForms"])
    await run.update({key: YES}, actor=CLIENT)
    await run.update({key: YES})
    assert key in (await parked(run))["inputRequests"]
    await run.update({key: YES}, actor=PAGE)
    assert (await run.result())["structuredContent"]["stopped"] is True


@pytest.mark.parametrize(
    ("memo", "said"),
    [
        ({"client_capabilities": PAGES["client_capabilities"]}, "this server has no pages"),
        ({"pages": PAGES["pages"]}, "did not declare"),
    ],
)
async def test_what_cannot_be_asked_on_a_page_is_a_tool_error(tasks: Tasks, memo: dict[str, Any], said: str) -> None:
    failure = await (await tasks.start("kit_loop_open", "page", **memo)).failure()
    assert failure.type == TOOL_ERROR and said in failure.message


async def test_what_the_pages_of_open_questions_ask_counts_as_part_of_the_view() -> None:
    questions = Questions(
        owner=None, new_key=lambda: "k", new_future=lambda: asyncio.get_running_loop().create_future()
    )
    request = {"method": "elicitation/create", "params": {}}
    before = questions.size_with(request, None)
    questions.ask("one", request, datetime(2026, 11, 30, tzinfo=UTC), None, PageForm(form={"title": "x" * 1000}))
    assert questions.size_with(request, None) > before + 1000
    assert questions.size_with(request, PageForm(form={"title": "y" * 1000})) > before + 2000
