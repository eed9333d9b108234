"""Tools that fuzzing calls (`--tasks tests.fuzz.tools`): they end soon, and ask whatever form the caller names."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel, Field
from temporalio import workflow

from workflows.kit import Task, ToolError, tool

with workflow.unsafe.imports_passed_through():
    from tests.fixtures.case_parts import FORMS, Value


class Seconds(BaseModel):
    seconds: float = Field(0.0, ge=0, le=1)


class Schema(BaseModel):
    schema_: dict[str, Any] = Field(alias="schema")
    times: int = Field(1, ge=1, le=3)


@tool(name="echo", description="Returns its argument.", task="never")
class Echo(Task[Value, Any]):
    async def execute(self, arguments: Value) -> Any:
        return {"x": arguments.x}


@tool(name="work", description="Takes a moment.")
class Work(Task[Seconds, Any]):
    async def execute(self, arguments: Seconds) -> Any:
        await workflow.sleep(arguments.seconds)
        return {"worked": True}


@tool(name="quick", description="Answers inline if it can.", wait_budget=timedelta(seconds=2))
class Quick(Task[Seconds, Any]):
    async def execute(self, arguments: Seconds) -> Any:
        await workflow.sleep(arguments.seconds)
        return {"worked": True}


@tool(name="ask_form", description="Asks the form that it is given.", client_capabilities=FORMS)
class AskForm(Task[Schema, Any]):
    async def execute(self, arguments: Schema) -> Any:
        params = {"message": "Well?", "requestedSchema": arguments.schema_}
        try:
            answers = [await self.ask("elicitation/create", params, key="form") for _ in range(arguments.times)]
        except (TypeError, ValueError) as unfit:
            raise ToolError(str(unfit)) from None
        return {"answers": answers}


@tool(name="ask_model", description="Asks the client's model.", client_capabilities={"sampling": {}})
class AskModel(Task[Value, Any]):
    async def execute(self, arguments: Value) -> Any:
        message = {"role": "user", "content": {"type": "text", "text": "Well?"}}
        return await self.ask("sampling/createMessage", {"messages": [message], "maxTokens": 10}, key="model")


@tool(name="ask_roots", description="Asks for the client's roots.", client_capabilities={"roots": {}})
class AskRoots(Task[Value, Any]):
    async def execute(self, arguments: Value) -> Any:
        return await self.ask("roots/list", key="roots")


TASKS = (Echo, Work, Quick, AskForm, AskModel, AskRoots)
ACTIVITIES = ()
