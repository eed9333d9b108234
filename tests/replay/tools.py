"""The tools of the recorded histories: a step of each kind that the kit can take. They do not change."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.exceptions import is_cancelled_exception
from temporalio.workflow import ActivityCancellationType

from workflows.kit import NOT_OWNER, Form, JsonRpcError, Task, ToolError, tool

FORMS: dict[str, Any] = {"elicitation": {}}


class Way(BaseModel):
    way: str = ""


class Answer(Form):
    text: str


class Seen(BaseModel):
    texts: list[str]


@activity.defn(name="replay_step")
async def step(text: str) -> str:
    """Returns at once."""
    return text


@activity.defn(name="replay_deaf_step")
async def deaf_step() -> str:
    """Finishes with a value although it is cancelled."""
    try:
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        return "finished all the same"


async def run_step(text: str) -> str:
    return await workflow.execute_activity(step, text, start_to_close_timeout=timedelta(seconds=10))


@tool(name="replay_work", description="Works, and ends in the given way.")
class Work(Task[Way, Any]):
    async def execute(self, arguments: Way) -> Any:
        self.progress(1, total=2, message="begun")
        await run_step("first")
        await workflow.sleep(0.05)
        match arguments.way:
            case "failed":
                raise JsonRpcError(-32001, "no such record", {"id": 1})
            case "tool_error":
                raise ToolError("the record is locked")
            case "bug":
                raise ValueError("unexpected")
            case _:
                return {"text": await run_step("second")}


@tool(name="replay_cancel", description="Is cancelled, and ends in the given way.")
class Cancel(Task[Way, Any]):
    async def execute(self, arguments: Way) -> Any:
        try:
            if arguments.way == "last_step_finishes":
                return await workflow.execute_activity(
                    deaf_step,
                    start_to_close_timeout=timedelta(minutes=1),
                    heartbeat_timeout=timedelta(seconds=2),
                    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                )
            await workflow.sleep(3600)
        except BaseException as error:
            if not is_cancelled_exception(error):
                raise
            await run_step("unwound")
            if arguments.way == "completed":
                return "finished anyway"
            if arguments.way == "failed":
                raise RuntimeError("the unwinding broke") from None
            raise


@tool(name="replay_ask", description="Asks two questions after a first one.", client_capabilities=FORMS)
class Ask(Task[Way, Any]):
    async def execute(self, arguments: Way) -> Any:
        deadline = timedelta(seconds=0.5) if arguments.way == "deadline" else timedelta(days=1)
        first = await self.elicit("First?", Answer, key="first", deadline=deadline)
        second, third = await asyncio.gather(self.elicit("Then?", Answer), self.elicit("Then?", Answer))
        return {"texts": [first.text, *sorted([second.text, third.text])]}


@tool(name="replay_before", description="Asks before a handle is given.", client_capabilities=FORMS)
class Before(Task[Way, Any]):
    text = ""

    async def before_handle(self, arguments: Way) -> None:
        self.text = (await self.elicit("Who?", Answer, key="who")).text

    async def execute(self, arguments: Way) -> Any:
        return await run_step(self.text)


@tool(name="replay_loop", description="Asks in a loop with checkpoints.", client_capabilities=FORMS)
class Loop(Task[Way, Any]):
    State = Seen

    async def execute(self, arguments: Way) -> Any:
        seen = self.state or Seen(texts=[])
        aside = asyncio.create_task(self.elicit("Stop?", Answer, key="stop"))
        while not aside.done():
            form = await self.elicit("More?", Answer, key="more")
            seen.texts.append(form.text)
            await self.checkpoint(seen)
        return {"texts": seen.texts, "stopped": aside.result().text}


class Rounds(BaseModel):
    count: int


@tool(name="replay_approve", description="Works on while somebody else is asked for an approval.")
class Approve(Task[Way, Any]):
    State = Rounds

    async def execute(self, arguments: Way) -> Any:
        state, payment = self.state or Rounds(count=0), {"cents": 1250}
        asked = asyncio.create_task(self.approve("Pay?", payment, answered_by=NOT_OWNER, key="approval"))
        while not asked.done():
            await workflow.sleep(0.05)
            state.count += 1
            if not asked.done():
                await self.checkpoint(state)
        approval = asked.result()
        self.spend(approval, payment)
        return {"text": await run_step("paid"), "approval": approval, "answer": self.answer_of("approval")}


TASKS = (Work, Cancel, Ask, Before, Loop, Approve)
ACTIVITIES = (step, deaf_step)
