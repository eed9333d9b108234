"""Declarations: what a tool says of itself, and what is refused at import."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from temporalio import workflow

from tests.kit.tools import Ask, Before, Mode, Nothing
from workflows.kit import Task, tool


class Wrong(Task[Nothing, str]):
    pass


class Untyped(Task):  # type: ignore[type-arg]
    pass


class Listed(Task[list[str], str]):
    pass


class Result(BaseModel):
    answer: int


class Typed(Task[Mode, Result]):
    async def execute(self, arguments: Mode) -> Result:
        return Result(answer=1)


def test_the_schemas_come_from_the_types() -> None:
    declaration = tool(name="typed", description="Typed.")(Typed).declaration
    assert declaration.input_schema["properties"]["mode"]["type"] == "string"
    assert declaration.input_schema["additionalProperties"] is False
    assert declaration.output_schema is not None
    assert declaration.output_schema["required"] == ["answer"]


def test_the_workflow_type_is_the_tools_name() -> None:
    definition = workflow._Definition.from_class(Ask)
    assert definition is not None
    assert definition.name == Ask.declaration.name == "kit_ask"


def test_only_a_tool_that_overrides_the_hook_asks_before_its_handle() -> None:
    assert Before.declaration.asks_before_handle
    assert not Ask.declaration.asks_before_handle


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "a\nb", "\x00"], ids=repr)
def test_a_name_that_cannot_travel_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="Wrong: a tool's name"):
        tool(name=name, description="Wrong.")(Wrong)


@pytest.mark.parametrize(
    ("cls", "reason"), [(Untyped, "Untyped: derive from Task"), (Listed, "Listed: a tool's arguments")]
)
def test_arguments_that_are_no_object_are_refused(cls: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        tool(name="wrong", description="Wrong.")(cls)
