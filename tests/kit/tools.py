"""Tools that the kit's tests run; module level, because Temporal refuses local workflow classes."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field, field_validator
from temporalio import activity, workflow
from temporalio.exceptions import is_cancelled_exception
from temporalio.workflow import ActivityCancellationType

from workflows.kit import NOT_OWNER, Approval, Declined, Form, JsonRpcError, Task, ToolError, group, tool


class Nothing(BaseModel):
    pass


class Confirm(Form):
    confirm: bool


class Size(StrEnum):
    SMALL = "s"
    LARGE = "l"


class Order(Form):
    size: Size
    count: int = Field(ge=1, le=9)

    @field_validator("count")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value


def _nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


class Content(BaseModel):
    content: list[str]
    other: int


class Mode(BaseModel):
    mode: str = ""
    steps: int = 1


@activity.defn(name="kit_step")
async def kit_step(seconds: float) -> str:
    """Heartbeats, and finishes with a value even when it is cancelled."""
    for _ in range(int(seconds * 20)):
        activity.heartbeat()
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            return "finished all the same"
    return "finished"


@activity.defn(name="kit_fail")
async def kit_fail(kind: str) -> None:
    if kind == "declared":
        raise ToolError("declared by the activity")
    raise ValueError("undeclared")


@tool(name="kit_ask", description="Asks in the way its mode says.", client_capabilities={"elicitation": {}})
class Ask(Task[Mode, dict[str, Any]]):
    async def execute(self, arguments: Mode) -> dict[str, Any]:
        return {"answers": await getattr(self, arguments.mode)(arguments)}

    async def one(self, _: Mode) -> list[Any]:
        return [(await self.elicit("Sure?", Confirm, key="sure")).confirm]

    async def sequential(self, arguments: Mode) -> list[Any]:
        return [(await self.elicit("Sure?", Confirm, key="sure")).confirm for _ in range(arguments.steps)]

    async def parallel(self, arguments: Mode) -> list[Any]:
        forms = await asyncio.gather(*(self.elicit("Sure?", Confirm) for _ in range(arguments.steps)))
        return [form.confirm for form in forms]

    async def validated(self, _: Mode) -> list[Any]:
        order = await self.elicit("How many?", Order, key="order")
        return [order.size, order.count]

    async def deadline(self, _: Mode) -> list[Any]:
        try:
            return [(await self.elicit("Sure?", Confirm, deadline=timedelta(seconds=1))).confirm]
        except Declined as declined:
            return [declined.action, declined.expired]

    async def default(self, _: Mode) -> list[Any]:
        form = await self.elicit("Sure?", Confirm, deadline=timedelta(seconds=1), on_deadline=Confirm(confirm=False))
        return [form.confirm]

    async def choice(self, _: Mode) -> list[Any]:
        return [await self.choose("Which?", {"a": "The first", "b": "The second"}, key="which")]

    async def sampled(self, _: Mode) -> list[Any]:
        return [await self.ask("sampling/createMessage", {"messages": [], "maxTokens": 1})]


@tool(name="kit_end", description="Ends in the way its mode says.")
class End(Task[Mode, Any]):
    async def execute(self, arguments: Mode) -> Any:
        return await getattr(self, arguments.mode)()

    async def text(self) -> Any:
        return "done"

    async def not_finite_progress(self) -> Any:
        self.progress(float("nan"), message="lost")
        self.progress(1, total=float("inf"), message="kept")
        return self.view()["progress"]

    async def deep(self) -> Any:
        return _nested(300)

    async def deep_question(self) -> Any:
        await self.ask("sampling/createMessage", {"messages": [_nested(300)], "maxTokens": 1})

    async def odd_key(self) -> Any:
        await self.elicit("Sure?", Confirm, key="k\ud800")

    async def odd_text(self) -> Any:
        return "a\ud800b"

    async def odd_progress(self) -> Any:
        self.progress(1, message="a\ud800b")
        return self.view()["statusMessage"]

    async def grouped_tool_error(self) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(workflow.sleep(60))
            group.create_task(self.tool_error())

    async def grouped_bug(self) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.tool_error())
            group.create_task(self.bug())

    async def empty_content(self) -> Any:
        return Content(content=[], other=1)

    async def unanswerable(self) -> Any:
        await self.ask("elicitation/create", {"message": "?", "requestedSchema": {"type": ["object"]}})

    async def unwound_badly(self) -> Any:
        try:
            await workflow.sleep(3600)
        except asyncio.CancelledError:
            raise JsonRpcError(-32603, "rollback broke") from None

    async def model(self) -> Any:
        return Mode(mode="done")

    async def tool_error(self) -> Any:
        raise ToolError("no such record")

    async def rpc_error(self) -> Any:
        raise JsonRpcError(4711, "bad ✓", {"k": [1, None]})

    async def bug(self) -> Any:
        raise KeyError("secret detail")

    async def huge_bug(self) -> Any:
        raise ValueError("x" * 3_000_000)

    async def exit(self) -> Any:
        raise SystemExit(3)

    async def child_exit(self) -> Any:
        await asyncio.gather(self.exit())

    async def unheard_child(self) -> Any:
        lost = asyncio.create_task(self.bug())
        await workflow.sleep(0.01)
        return lost.done()

    async def heard_child(self) -> Any:
        child = asyncio.create_task(self.bug())
        await workflow.sleep(0.01)
        try:
            await child
        except KeyError:
            return "heard"

    async def base_exception(self) -> Any:
        raise BaseException("neither")  # noqa: TRY002

    async def unserialisable(self) -> Any:
        return {"a", "b"}

    async def not_finite(self) -> Any:
        return {"n": float("nan"), "i": [float("inf")]}

    async def too_large(self) -> Any:
        return "x" * 2_000_000

    async def activity_declared(self) -> Any:
        await workflow.execute_activity(kit_fail, "declared", start_to_close_timeout=timedelta(seconds=5))


@tool(name="kit_stop", description="Is cancelled while it waits in the way its mode says.")
class Stop(Task[Mode, list[str]]):
    async def execute(self, arguments: Mode) -> list[str]:
        self.seen: list[str] = []
        try:
            await self.wait(arguments.mode)
            self.seen.append("step returned")
            await workflow.sleep(60)
            self.seen.append("went on")
        except BaseException as error:
            if not is_cancelled_exception(error):
                raise
            self.seen.append("cancelled")
            async with asyncio.TaskGroup() as group:  # unwinding may use everything
                group.create_task(workflow.sleep(0.01))
        return self.seen

    async def wait(self, mode: str) -> None:
        if mode == "sleep":
            await workflow.sleep(60)
        elif mode == "shield":
            await asyncio.shield(asyncio.create_task(workflow.sleep(0.5)))
        elif mode == "swallow":
            try:
                await workflow.sleep(60)
            except asyncio.CancelledError:
                self.seen.append("swallowed")
        elif mode == "question":
            await self.elicit("Sure?", Confirm)
        else:
            await workflow.execute_activity(
                kit_step,
                1.0,
                start_to_close_timeout=timedelta(seconds=30),
                heartbeat_timeout=timedelta(seconds=2),
                cancellation_type=ActivityCancellationType[mode],
            )


@tool(name="kit_unwind", description="Unwinds in the way its mode says.")
class Unwind(Task[Mode, str]):
    async def execute(self, arguments: Mode) -> str:
        try:
            await workflow.sleep(3600)
        except asyncio.CancelledError:
            if arguments.mode == "complete":
                return "finished anyway"
            if arguments.mode == "tool_error":
                raise ToolError("could not undo") from None
            if arguments.mode == "break":
                raise RuntimeError("rollback broke") from None
            raise
        return "slept"


class Loop(BaseModel):
    index: int
    answers: list[bool]
    extra: Any = None


@tool(name="kit_loop", description="Asks again and again, with checkpoints.")
class Looping(Task[Mode, dict[str, Any]]):
    State = Loop

    async def execute(self, arguments: Mode) -> dict[str, Any]:
        state = self.state or Loop(index=0, answers=[])
        for index in range(state.index, arguments.steps):
            form = await self.elicit("Sure?", Confirm, key="sure")
            state = Loop(index=index + 1, answers=[*state.answers, form.confirm])
            await self.checkpoint(state)
        return {"answers": state.answers}


@tool(name="kit_loop_open", description="Keeps one question open over its checkpoints.")
class OpenLoop(Task[Mode, dict[str, Any]]):
    State = Loop

    async def execute(self, arguments: Mode) -> dict[str, Any]:
        state = self.state or Loop(index=0, answers=[])
        question = asyncio.create_task(self.elicit("Stop now?", Confirm, out_of_band=arguments.mode == "page"))
        while not question.done():
            await workflow.sleep(0.02)
            state = Loop(index=state.index + 1, answers=[])
            if not question.done():
                await self.checkpoint(state)
        return {"stopped": question.result().confirm, "steps": state.index}


@tool(name="kit_slow_rollover", description="Continues as new in a workflow task that takes a second.")
class SlowRollover(Task[Mode, str]):
    State = Loop

    async def execute(self, arguments: Mode) -> str:
        state = self.state or Loop(index=0, answers=[])
        while state.index < 100:
            await workflow.sleep(0.01)
            state = Loop(index=state.index + 1, answers=[])
            try:
                await self.checkpoint(state)
            except BaseException:
                with workflow.unsafe.sandbox_unrestricted():
                    time.sleep(1)  # noqa: ASYNC251 - a slow workflow task is the point
                raise
        return "never cancelled"


@tool(name="kit_answered_rollover", description="Continues as new in a slow workflow task, with two open questions.")
class AnsweredRollover(Task[Mode, bool]):
    State = Loop

    async def execute(self, arguments: Mode) -> bool:
        continued = self.state is not None
        second = asyncio.create_task(self.elicit("Second?", Confirm, key="second"))
        if not continued:
            self.first = asyncio.create_task(self.elicit("First?", Confirm, key="first"))
        while not continued:
            await workflow.sleep(0.01)
            try:
                await self.checkpoint(Loop(index=0, answers=[]))
            except BaseException:
                with workflow.unsafe.sandbox_unrestricted():
                    time.sleep(1)  # noqa: ASYNC251 - an answer must find time to arrive
                raise
        return (await second).confirm


@tool(name="kit_deep_checkpoint", description="Has a checkpoint that no JSON reader would take.")
class DeepCheckpoint(Task[Mode, str]):
    State = Loop

    async def execute(self, arguments: Mode) -> str:
        while True:
            await workflow.sleep(0.001)
            await self.checkpoint(Loop(index=0, answers=[], extra=_nested(150)))


@tool(name="kit_before", description="Asks before a handle is given.", task="required")
class Before(Task[Nothing, str]):
    async def before_handle(self, arguments: Nothing) -> None:
        self.confirmed = await self.elicit("Sure?", Confirm, key="sure")

    async def execute(self, arguments: Nothing) -> str:
        await workflow.sleep(0.1)
        return str(self.confirmed.confirm)


@tool(name="kit_before_twice", description="Asks before a handle is given, and after.")
class BeforeTwice(Task[Nothing, str]):
    async def before_handle(self, arguments: Nothing) -> None:
        await self.elicit("Sure?", Confirm, key="sure")

    async def execute(self, arguments: Nothing) -> str:
        return str((await self.elicit("Really?", Confirm, key="really")).confirm)


ANSWERERS = {"not_owner": NOT_OWNER, "group": group("managers"), "anybody": None}


@tool(name="kit_asks_others", description="Asks whom its mode says, and tells who answered.")
class AskOthers(Task[Mode, dict[str, Any]]):
    async def execute(self, arguments: Mode) -> dict[str, Any]:
        await workflow.sleep(0.01)  # what is offered has come
        form = await self.elicit("Sure?", Confirm, answered_by=ANSWERERS[arguments.mode], key="sure")
        answer = self.answer_of("sure")
        return {"confirm": form.confirm, "answer": answer, "unknown": self.answer_of("other")}


@tool(name="kit_asks_others_each_way", description="Asks a choice and a raw question of others.")
class AskOthersEachWay(Task[Mode, list[Any]]):
    async def execute(self, arguments: Mode) -> list[Any]:
        params = {"message": "Raw?", "requestedSchema": Confirm.requested_schema()}
        chosen, raw = await asyncio.gather(
            self.choose("Which?", {"a": "The first"}, answered_by=NOT_OWNER, key="choice"),
            self.ask("elicitation/create", params, answered_by=group("managers"), key="raw"),
        )
        return [chosen, raw]


@tool(name="kit_asks_others_for_long", description="Continues as new while somebody else is asked.")
class AskOthersForLong(Task[Mode, dict[str, Any]]):
    State = Loop

    async def execute(self, arguments: Mode) -> dict[str, Any]:
        state = self.state or Loop(index=0, answers=[])
        question = asyncio.create_task(self.elicit("Sure?", Confirm, answered_by=NOT_OWNER, key="sure"))
        while not question.done():
            await workflow.sleep(0.02)
            state = Loop(index=state.index + 1, answers=[])
            if not question.done():
                await self.checkpoint(state)
        return {"answer": self.answer_of("sure"), "steps": state.index}


class Refund(BaseModel):
    order: str
    cents: int


class Approvals(BaseModel):
    approval: Approval | None = None
    rounds: int = 0


REFUND = Refund(order="A-17", cents=1250)
OTHER = Refund(order="A-17", cents=9999)


@activity.defn(name="kit_pay_back")
async def kit_pay_back(refund: Refund, approval: Approval) -> str:
    """The protected step."""
    approval.check(refund)
    return f"paid {refund.cents}"


@tool(name="kit_approve", description="Pays back with an approval, in the way that its mode says.")
class Approve(Task[Mode, dict[str, Any]]):
    State = Approvals

    async def execute(self, arguments: Mode) -> dict[str, Any]:
        state = self.state or Approvals()
        if state.approval is None:
            deadline = timedelta(seconds=0.2) if arguments.mode == "deadline" else None
            try:
                state.approval = await self.approve("Pay back?", REFUND, key="refund", deadline=deadline)
            except Declined as declined:
                return {"declined": declined.note, "expired": declined.expired}
            self.spend(state.approval, OTHER if arguments.mode == "changed" else REFUND)
            while arguments.mode == "spent_after_rollover" and state.rounds < 40:
                state.rounds += 1
                await workflow.sleep(0.001)
                await self.checkpoint(state)
        if arguments.mode.startswith("spent"):
            self.spend(state.approval, REFUND)
        refund = OTHER if arguments.mode == "changed_in_the_activity" else REFUND
        paid = await workflow.execute_activity(
            kit_pay_back, args=[refund, state.approval], start_to_close_timeout=timedelta(seconds=10)
        )
        return {"paid": paid, "approval": state.approval}


TASKS = (
    Ask,
    End,
    Stop,
    Unwind,
    Looping,
    OpenLoop,
    SlowRollover,
    AnsweredRollover,
    DeepCheckpoint,
    Before,
    BeforeTwice,
    AskOthers,
    AskOthersEachWay,
    AskOthersForLong,
    Approve,
)
ACTIVITIES = (kit_step, kit_fail, kit_pay_back)
