"""Plain workflows that speak the contract by hand, as a team without the kit would write them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, CancelledError

ONCE = RetryPolicy(maximum_attempts=1)

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


@workflow.defn(name="asker", sandboxed=False)
class Asker:
    """Asks the keys of each round at once, round after round.

    Arguments: `rounds`; `publish` (default true) to keep the memo's snapshot; `omit` to publish that it is too large,
    `omit_first` only the first time; `every` to say that every change is published; `hold` to go on working until the
    key "release" arrives; `continue_after` rounds to continue as new. The key "wedge" fails the workflow task.
    """

    @workflow.init
    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.open: list[str] = []
        self.answers: dict[str, Any] = dict(arguments.get("answers", {}))
        self.changed_at = workflow.now()

    @workflow.run
    async def run(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("every"):
            self._publish()
        for number, keys in enumerate(arguments["rounds"]):
            if arguments.get("continue_after") == number:
                rest = {
                    **arguments,
                    "rounds": arguments["rounds"][number:],
                    "answers": self.answers,
                    "continue_after": 0.5,
                }
                workflow.continue_as_new(rest)
            self.open = list(keys)
            self._publish()
            while self.open:
                before = list(self.open)
                await workflow.wait_condition(lambda before=before: self.open != before)  # type: ignore[misc]
                self._publish()
        if arguments.get("hold"):
            await workflow.wait_condition(lambda: "release" in self.answers)
        return {"content": [{"type": "text", "text": ",".join(self.answers)}]}

    @workflow.query(name="mcp_task")
    def view(self) -> dict[str, Any]:
        view: dict[str, Any] = {
            "v": 1,
            "status": "working",
            "changedAt": self.changed_at.isoformat(),
            "later": "ignored",
            **({"published": True} if self.arguments.get("every") else {}),
        }
        if self.open:
            view["status"] = "input_required"
            view["inputRequests"] = {
                key: {"method": "elicitation/create", "params": {"message": key, "requestedSchema": SCHEMA}}
                for key in self.open
            }
        return view

    @workflow.signal(name="mcp_update")
    def update(self, signal: dict[str, Any]) -> None:
        if "wedge" in signal["responses"]:
            raise RuntimeError("wedged")
        for key, response in signal["responses"].items():
            if key in self.open or key == "release":
                self.answers.setdefault(key, response)
        self.open = [key for key in self.open if key not in self.answers]

    def _publish(self) -> None:
        self.changed_at = workflow.now()
        if self.arguments.get("publish", True):
            omit = self.arguments.get("omit") or (self.arguments.get("omit_first") and not self.answers)
            workflow.upsert_memo({"mcp_view": {"v": 1, "omitted": True} if omit else self.view()})


@workflow.defn(name="mute", sandboxed=False)
class Mute:
    """Has no handlers at all; waits to be cancelled."""

    @workflow.run
    async def run(self, arguments: dict[str, Any]) -> str:
        await asyncio.sleep(3600)
        return "slept"


@workflow.defn(name="junk", sandboxed=False)
class Junk:
    """Its query answers something that is not a view, or raises."""

    @workflow.init
    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments

    @workflow.run
    async def run(self, arguments: dict[str, Any]) -> str:
        await asyncio.sleep(3600)
        return "slept"

    @workflow.query(name="mcp_task")
    def view(self) -> Any:
        if self.arguments.get("raise"):
            raise ValueError("no view today")
        return self.arguments["view"]


@workflow.defn(name="beater", sandboxed=False)
class Beater:
    """Runs one activity that heartbeats its progress and waits."""

    @workflow.run
    async def run(self, arguments: dict[str, Any]) -> str:
        return await workflow.execute_activity(
            beat, arguments, start_to_close_timeout=timedelta(minutes=5), heartbeat_timeout=timedelta(seconds=30)
        )

    @workflow.query(name="mcp_task")
    def view(self) -> dict[str, Any]:
        return {
            "v": 1,
            "status": "working",
            "statusMessage": "copying",
            "changedAt": workflow.info().start_time.isoformat(),
        }


@workflow.defn(name="busy", sandboxed=False)
class Busy:
    """Does so many steps at a time, one after the other, that a workflow task is always pending; publishes how many it
    has done, until it is cancelled.
    """

    @workflow.run
    async def run(self, arguments: dict[str, Any]) -> None:
        self.done = 0
        await asyncio.gather(*(self._steps() for _ in range(arguments["at_a_time"])))

    async def _steps(self) -> None:
        while True:
            await workflow.execute_activity(step, start_to_close_timeout=timedelta(seconds=30))
            self.done += 1
            view = {"v": 1, "status": "working", "changedAt": workflow.info().start_time.isoformat(), "published": True}
            workflow.upsert_memo({"mcp_view": view | {"progress": [{"progress": self.done}]}})


@workflow.defn(name="stumbler", sandboxed=False)
class Stumbler:
    """Asks, with steps under way that end one after the other; once it is answered its workflow tasks are slow and
    fail, with something buffered each time.
    """

    def __init__(self) -> None:
        self.answered = False

    @workflow.run
    async def run(self, arguments: dict[str, Any]) -> None:
        request = {"method": "elicitation/create", "params": {"message": "q", "requestedSchema": SCHEMA}}
        view = {"v": 1, "changedAt": workflow.info().start_time.isoformat(), "published": True}
        workflow.upsert_memo({"mcp_view": {**view, "status": "input_required", "inputRequests": {"q": request}}})
        self.steps = [asyncio.create_task(self._step(number * 0.06)) for number in range(60)]
        await workflow.wait_condition(lambda: self.answered)
        time.sleep(0.25)  # noqa: ASYNC251 - a slow workflow task is the point
        raise RuntimeError("stumbled")

    async def _step(self, seconds: float) -> None:
        await workflow.execute_activity(wait, seconds, start_to_close_timeout=timedelta(seconds=30))

    @workflow.signal(name="mcp_update")
    def update(self, signal: dict[str, Any]) -> None:
        self.answered = True


@workflow.defn(name="ender", sandboxed=False)
class Ender:
    """Ends in the way its arguments name; see the table in test_rows.py."""

    @workflow.run
    async def run(self, arguments: dict[str, Any]) -> Any:
        how = arguments["how"]
        if "wait" in arguments:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if arguments["wait"] == "cancel":
                    raise
        match how:
            case "return":
                return arguments["value"]
            case "deep":
                nested: Any = "bottom"
                for _ in range(arguments["levels"]):
                    nested = [nested]
                return nested
            case "raise":
                raise ApplicationError(
                    arguments["message"], *arguments.get("details", []), type=arguments["type"], non_retryable=True
                )
            case "bug":
                raise ApplicationError("secret detail", type="KeyError")
            case "cancelled":
                raise CancelledError("by nobody")
            case "activity":
                await workflow.execute_activity(
                    fail, arguments, start_to_close_timeout=timedelta(seconds=30), retry_policy=ONCE
                )
            case "child":
                child = {**arguments, "how": "raise"}
                await workflow.execute_child_workflow(Ender.run, child, id=f"{workflow.info().workflow_id}-child")
            case "retry":
                if workflow.info().attempt < 2:
                    raise ApplicationError("again")
                return "second"
            case _:
                pass
        return None


@activity.defn
async def beat(arguments: dict[str, Any]) -> str:
    """Report once, then wait to be cancelled with the worker."""
    activity.heartbeat(arguments["report"])
    await asyncio.sleep(3600)
    return "beaten"


@activity.defn
async def wait(seconds: float) -> None:
    """Returns after so long."""
    await asyncio.sleep(seconds)


@activity.defn
async def step() -> None:
    """Returns at once."""


@activity.defn
async def fail(arguments: dict[str, Any]) -> None:
    """Fail as the arguments say; a plain exception without a type."""
    if arguments.get("plain"):
        raise ValueError(arguments["message"])
    raise ApplicationError(
        arguments["message"],
        *arguments.get("details", []),
        type=arguments.get("type"),
        non_retryable=arguments.get("non_retryable", False),
    )


WORKFLOWS = [Asker, Mute, Junk, Beater, Busy, Stumbler, Ender]
ACTIVITIES: list[Callable[..., Any]] = [beat, wait, step, fail]
