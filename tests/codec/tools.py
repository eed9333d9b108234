"""Tasks of a codec's tests: full of what a plain reader of Temporal must not find."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from workflows.kit import Form, JsonRpcError, Task, ToolError, tool
from workflows.kit.activity import report_progress

ESCAPED = "\x01" * 600_000
"""Below the limits as text, and six times as much as JSON."""


class Secret(BaseModel):
    secret: str
    end: str = "result"


class Answer(Form):
    text: str


@activity.defn(name="codec_whisper")
async def whisper(secret: str) -> str:
    report_progress(1, total=2, message=f"mark-heartbeat {secret}")
    await asyncio.sleep(1.5)
    return f"whispered {secret}"


@activity.defn(name="codec_drop")
async def drop(secret: str) -> None:
    said = ESCAPED if secret == "escapes" else secret
    raise ApplicationError(f"mark-error {said}", {"mark-detail": secret}, type="codec.Dropped")


ONCE = RetryPolicy(maximum_attempts=1)
MINUTE = timedelta(minutes=1)


@tool(
    name="confide",
    title="mark-title",
    description="Takes a secret, asks for another, and ends as it is told.",
    client_capabilities={"elicitation": {}},
    declared_errors=("codec.Dropped",),
)
class Confide(Task[Secret, Any]):
    async def execute(self, arguments: Secret) -> Any:
        self.progress(1, message=f"mark-progress {arguments.secret}")
        said = await workflow.execute_activity(
            whisper, arguments.secret, start_to_close_timeout=MINUTE, heartbeat_timeout=MINUTE, summary="mark-summary"
        )
        answer = await self.elicit(f"mark-question {arguments.secret}?", Answer, key="answer")
        match arguments.end:
            case "tool error":
                raise ToolError(f"mark-error {answer.text}")
            case "error":
                raise JsonRpcError(4711, f"mark-error {answer.text}", {"mark-detail": arguments.secret})
            case "step":
                await workflow.execute_activity(drop, answer.text, start_to_close_timeout=MINUTE, retry_policy=ONCE)
            case "escapes":
                raise ToolError(f"mark-error {ESCAPED}")
            case "step escapes":
                await workflow.execute_activity(drop, "escapes", start_to_close_timeout=MINUTE, retry_policy=ONCE)
            case "bug":
                raise RuntimeError(f"mark-error {answer.text}")
            case _:
                pass
        return {"said": said, "answer": answer.text}


@workflow.defn(name="codec_carry")
class Carry:
    """Hands everything that a run can hand on to a next one."""

    @workflow.run
    async def run(self, secret: str, again: bool) -> str:
        await workflow.sleep(timedelta(milliseconds=1), summary=f"mark-timer {secret}")
        workflow.upsert_memo({"note": f"mark-note {secret}"})
        if again:
            workflow.continue_as_new(args=[secret, False], memo={"note": f"mark-carried {secret}"})
        return secret


TASKS = (Confide,)
ACTIVITIES = (whisper, drop)
