"""Tools that ask on a page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel, Field, SecretStr
from temporalio import workflow

from workflows.kit import NOT_OWNER, Declined, Form, SecretForm, Task, group, tool
from workflows.kit.delegates import Delegates

MANAGERS: Final = Delegates(answer=("release-managers",))


class Nothing(BaseModel):
    """No arguments."""


class Login(SecretForm):
    """A secret, and something that is none."""

    who: str = Field(default="", max_length=50, title="User name")
    password: SecretStr = Field(min_length=4, title="Password")


class Leave(Form):
    """Every kind of field."""

    yes: bool = Field(title="Yes or no")
    days: int = Field(ge=1, le=30, title="Days")
    why: str = Field(default="", max_length=500, title="Why")


@tool(name="ask_password", description="Asks for a password.", answer_window=timedelta(minutes=5))
class AskPassword(Task[Nothing, dict[str, Any]]):
    """Opens it in an activity."""

    async def execute(self, arguments: Nothing) -> dict[str, Any]:
        """Ask, use, tell."""
        sealed = await self.ask_secret("Which password <b>opens</b> it?", Login, key="password")
        used = await workflow.execute_activity(
            "pages_use", sealed, result_type=str, start_to_close_timeout=timedelta(seconds=10)
        )
        answer = self.answer_of("password")
        return {"used": used, "by": answer.by.to_json() if answer and answer.by else None}


@tool(name="ask_leave", description="Asks for leave.", answer_window=timedelta(minutes=5))
class AskLeave(Task[Nothing, dict[str, Any]]):
    """Nothing of it is secret."""

    async def execute(self, arguments: Nothing) -> dict[str, Any]:
        """Ask, tell."""
        try:
            leave = await self.elicit("May she go?", Leave, out_of_band=True, key="leave/1")
        except Declined as declined:
            return {"declined": declined.action}
        return leave.model_dump()


@tool(name="ask_boss", description="Has somebody else approve.", delegates=MANAGERS)
class AskBoss(Task[Nothing, dict[str, Any]]):
    """A member of a group, who is not the owner's own."""

    async def execute(self, arguments: Nothing) -> dict[str, Any]:
        """Ask, spend, tell."""
        approval = await self.approve(
            "Ship it?", {"version": 1}, answered_by=group("release-managers"), out_of_band=True, key="ship"
        )
        self.spend(approval, {"version": 1})
        return {"by": approval.by.to_json() if approval.by else None, "note": approval.note}


@tool(name="ask_other", description="Has anybody else approve.", delegates=MANAGERS)
class AskOther(Task[Nothing, dict[str, Any]]):
    """Anybody but the owner."""

    async def execute(self, arguments: Nothing) -> dict[str, Any]:
        """Ask, tell."""
        leave = await self.elicit("Really?", Leave, answered_by=NOT_OWNER, out_of_band=True, key="really")
        return leave.model_dump()
