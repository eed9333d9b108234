"""The scenes. Each checks what it shows, so that the demonstration ends well only if every task did."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from .client import ENDED, TasksClient, TaskState
from .stack import Stack
from .transcript import Transcript, shown
from .world import AMBIGUOUS, CREDENTIAL, PAGES, RECORDS, World

MOVING_SECONDS: Final = 60.0

LOST_STEP_SECONDS: Final = 90.0
"""A step whose worker was killed is tried again when its heartbeat is missed: 15 s, and what is left of the step."""


class DemoError(Exception):
    """Something did not end as it should have."""


class Story:
    """The scenes, in order; see `play`."""

    def __init__(self, transcript: Transcript, client: TasksClient, stack: Stack, world: World) -> None:
        self._say = transcript
        self._client = client
        self._stack = stack
        self._world = world

    async def play(self) -> None:
        """Play all scenes.

        Raises:
            DemoError: A task did not end as expected.
        """
        tools = await self._client.tools()
        self._say.line("client", f"tools/list: {', '.join(tools)}")
        migration = await self._migration_survives_a_killed_worker()
        await self._approved_deployment()
        await self._cancelled_deployment()
        await self._crawl_with_a_login()
        await self._migration_ends(migration)

    async def _migration_survives_a_killed_worker(self) -> str:
        self._say.heading(f"1. Moving {RECORDS} records, and the worker dies in the middle")
        task = await self._start("migrate_records", {"source": "old.db", "target": "new.db", "batch_size": 2})
        await self._look(task)
        await self._records_move()
        pid = await self._stack.kill("worker")
        arrived = len(self._world.arrived())
        expect(0 < arrived < RECORDS, f"the worker was killed in the middle ({arrived} records)")
        self._say.line("operator", f"kill -9 {pid}: the worker is dead, with {arrived} of {RECORDS} records moved")
        state = await self._look(task)
        expect(state.status == "working", "the task lives on without a worker")
        await self._stack.start("worker")
        self._say.line("operator", "a new worker is started")
        self._say.note(
            "  Temporal waits 15 s for a sign of life of the lost step before it gives it to the new worker."
        )
        self._say.note("  Meanwhile:")
        return task

    async def _records_move(self) -> None:
        """Wait until a tenth of the records have arrived. Looked up where they arrive: a client may look too late."""
        async with asyncio.timeout(MOVING_SECONDS):
            while len(self._world.arrived()) <= RECORDS // 10:  # noqa: ASYNC110  # a database has no event
                await asyncio.sleep(0.01)

    async def _approved_deployment(self) -> None:
        self._say.heading("2. A deployment that waits for an approval")
        task = await self._start("deploy_release", {"application": "shop", "release": "v2"})
        key, _ = await self._one_question(task)
        await self._answer(task, {key: {"approve": True, "note": "looks good"}})
        result = await self._completed(task)
        expect(result["outcome"] == "deployed" and self._world.live_release() == "v2", "v2 is live")

    async def _cancelled_deployment(self) -> None:
        self._say.heading("3. A deployment that is cancelled while it waits")
        task = await self._start("deploy_release", {"application": "shop", "release": "v3"})
        await self._one_question(task)
        await self._client.cancel(task)
        self._say.line("client", "tasks/cancel")
        state = await self._client.until(task, lambda state: state.status in ENDED)
        self._say.line("result", f"{state.status}; {self._world.live_release()} is still live")
        expect(state.status == "cancelled" and self._world.live_release() == "v2", "nothing was deployed")

    async def _crawl_with_a_login(self) -> None:
        self._say.heading("4. A crawl that meets a login page")
        task = await self._start("crawl_site", {"url": self._world.site, "delay_ms": 0})
        key, question = await self._one_question(task)
        self._say.note("  The answer is the name of a credential that the worker holds. No secret is sent.")
        await self._answer(task, {key: chosen(question, containing=CREDENTIAL)})
        result = await self._completed(task)
        titles = {page["title"] for page in result["pages"]}
        expect(titles == {title for title, _ in PAGES.values()}, "every page was found")

    async def _migration_ends(self, task: str) -> None:
        self._say.heading("5. Back to the migration")
        asked = 0
        while True:
            state = await self._client.until(
                task, lambda state: state.status == "input_required" or state.status in ENDED, within=LOST_STEP_SECONDS
            )
            if not state.input_requests:
                break
            self._show_questions(state)
            asked += len(state.input_requests)
            answers = {key: chosen(asking, containing="North") for key, asking in state.input_requests.items()}
            await self._answer(task, answers)
        result = await self._completed(task)
        expect(asked == len(AMBIGUOUS) == result["asked"], "every ambiguous record was asked about once")
        arrived = sorted(self._world.arrived())
        expect(arrived == list(range(1, RECORDS + 1)), "every record arrived exactly once")
        expect(not self._world.left(), "the source is empty")
        self._say.line("result", f"checked in the databases: all {RECORDS} records arrived, each exactly once")

    async def _start(self, tool: str, arguments: dict[str, Any]) -> str:
        self._say.line("client", f"tools/call {tool} {shown(arguments)}")
        handle = await self._client.start(tool, arguments)
        self._say.line("task", f"{handle.status}, {handle.task_id}")
        return handle.task_id

    async def _look(self, task: str) -> TaskState:
        state = await self._client.get(task)
        self._say.line("client", "tasks/get")
        self._say.line("task", f"{state.status}{f': {state.status_message}' if state.status_message else ''}")
        return state

    async def _one_question(self, task: str) -> tuple[str, Mapping[str, Any]]:
        self._say.line("client", "tasks/get, until it asks or ends")
        state = await self._client.until(task, lambda state: bool(state.input_requests) or state.status in ENDED)
        questions = state.input_requests or {}
        expect(len(questions) == 1, f"one question is asked (status {state.status})")
        self._show_questions(state)
        return next(iter(questions.items()))

    def _show_questions(self, state: TaskState) -> None:
        for question in (state.input_requests or {}).values():
            self._say.line("task", f"{state.status}: {question['params']['message']}")

    async def _answer(self, task: str, answers: dict[str, dict[str, Any]]) -> None:
        for content in answers.values():
            self._say.line("person", shown(content))
        await self._client.answer(task, answers)
        self._say.line("client", f"tasks/update with {len(answers)} {'answer' if len(answers) == 1 else 'answers'}")

    async def _completed(self, task: str) -> dict[str, Any]:
        state = await self._client.until(task, lambda state: state.status in ENDED, within=LOST_STEP_SECONDS)
        content = state.result.structured_content if state.result else None
        self._say.line("result", f"{state.status}: {shown(content or state.error)}")
        failed = state.result is None or state.result.is_error
        expect(state.status == "completed" and not failed and content is not None, "the task completed")
        return dict(content or {})


def chosen(question: Mapping[str, Any], *, containing: str) -> dict[str, Any]:
    """The content of the answer that picks the option whose label contains a text."""
    options = question["params"]["requestedSchema"]["properties"]["choice"]["oneOf"]
    fitting = [option["const"] for option in options if containing in option["title"]]
    expect(len(fitting) == 1, f"one option says {containing}")
    return {"choice": fitting[0]}


def expect(condition: bool, what: str) -> None:
    """Raises:
    DemoError: `condition` does not hold.
    """
    if not condition:
        raise DemoError(f"not as expected: {what}")
