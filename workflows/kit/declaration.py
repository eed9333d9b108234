"""A tool is declared where its workflow is: `@tool(...)` makes a `Task` subclass a Temporal workflow and an MCP tool.

The workflow type is the tool's name. What cannot work is refused here, at import: by the bridge and the worker alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from temporalio import workflow

from .delegates import NOBODY, Delegates

if TYPE_CHECKING:
    from .task import Task

TaskMode = Literal["never", "optional", "required"]

DEFAULT_POLL_INTERVAL: Final = timedelta(seconds=1)

SCOPE: Final = r"^[!#-\[\]-~]+$"
"""One scope, as OAuth writes it (RFC 6749, scope-token)."""

_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,128}")

TaskT = TypeVar("TaskT", bound="type[Task[Any, Any]]")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What a tool says of itself; see `tool` for the meaning of each."""

    name: str
    title: str | None
    description: str
    annotations: Mapping[str, Any]
    task: TaskMode
    lifetime: timedelta | None
    answer_window: timedelta | None
    poll_interval: timedelta
    wait_budget: timedelta
    queue: str | None
    client_capabilities: Mapping[str, Any]
    declared_errors: tuple[str, ...]
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    asks_before_handle: bool
    scopes: tuple[str, ...]
    delegates: Delegates
    arguments: TypeAdapter[Any] = field(repr=False, compare=False)


def tool(
    *,
    name: str,
    description: str,
    title: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    task: TaskMode = "optional",
    lifetime: timedelta | None = None,
    answer_window: timedelta | None = None,
    poll_interval: timedelta = DEFAULT_POLL_INTERVAL,
    wait_budget: timedelta = timedelta(0),
    queue: str | None = None,
    client_capabilities: Mapping[str, Any] | None = None,
    declared_errors: tuple[str, ...] = (),
    input_schema: Mapping[str, Any] | None = None,
    scopes: Sequence[str] = (),
    delegates: Delegates = NOBODY,
) -> Callable[[TaskT], TaskT]:
    """Declare a tool: a class decorator for `Task[Arguments, Result]` subclasses.

    Args:
        name: The tool's name and the workflow type; 1 to 128 visible characters.
        description: What it does, for the model.
        title: Its name for people.
        annotations: MCP tool annotations, e.g. `{"destructiveHint": True}`.
        task: `never`: the caller always waits for the result; `required`: only callers that take a task handle are
            served; `optional`: a handle for those who declare the Tasks extension, a wait for the others.
        lifetime: How long a task may live, from its creation; at the end it is cancelled, may unwind, and is `failed`.
            None (the default) is unlimited.
        answer_window: How long a question waits for a caller that holds no handle, if that is longer than the
            deployment's.
        poll_interval: How often a client should poll (`pollIntervalMs`); while a person is waited for, less often.
        wait_budget: How long a call may wait for a quick result before a handle is given out.
        queue: Task queue of the worker that runs it; the deployment's default if None.
        client_capabilities: What the client must have declared, e.g. `{"elicitation": {}}`; else the call is refused
            (-32021).
        declared_errors: Temporal failure types of this tool's activities whose messages the model may read.
        input_schema: JSON Schema of the arguments, instead of the one derived from the arguments' type.
        scopes: OAuth scopes that a caller must have beside `tasks:call`, each as the authorization server writes it.
            Who lacks one is refused (HTTP 403), and is not shown the tool.
        delegates: Groups whose members may read, answer or cancel its tasks beside their owners.

    Raises:
        TypeError, ValueError: The declaration cannot work; the message says which tool and why.
    """

    def declare(cls: TaskT) -> TaskT:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{cls.__name__}: a tool's name must have 1 to 128 visible characters")
        if isinstance(scopes, str) or not all(re.fullmatch(SCOPE, scope) for scope in scopes):
            raise ValueError(f"{cls.__name__}: scopes must be OAuth scopes, without blanks or quotation marks")
        arguments, result = type_arguments(cls)
        adapter: TypeAdapter[Any] = TypeAdapter(arguments)
        cls.declaration = Declaration(
            name=name,
            title=title,
            description=description,
            annotations=annotations or {},
            task=task,
            lifetime=lifetime,
            answer_window=answer_window,
            poll_interval=poll_interval,
            wait_budget=wait_budget,
            queue=queue,
            client_capabilities=client_capabilities or {},
            declared_errors=declared_errors,
            input_schema=input_schema or _input_schema(cls.__name__, adapter),
            output_schema=_output_schema(result),
            asks_before_handle=cls.overrides_before_handle(),
            scopes=tuple(scopes),
            delegates=delegates,
            arguments=adapter,
        )

        async def run(self: Any, arguments: Any = None, resumed: Any = None) -> Any:
            return await self.run_task(arguments, resumed)

        # Temporal wants the run method defined on the class itself
        run.__qualname__ = f"{cls.__name__}.run"
        run.__module__ = cls.__module__
        cls.run = workflow.run(run)  # type: ignore[attr-defined]
        return workflow.defn(name=name)(cls)

    return declare


def milliseconds(span: timedelta) -> int:
    """`span` in whole milliseconds."""
    return span // timedelta(milliseconds=1)


def type_arguments(cls: type[Task[Any, Any]]) -> tuple[Any, Any]:
    """The `Arguments` and `Result` that a class gave to `Task[Arguments, Result]`.

    Raises:
        TypeError: It gave none.
    """
    for base in getattr(cls, "__orig_bases__", ()):
        if getattr(get_origin(base), "is_task_base", False) and len(get_args(base)) == 2:
            arguments, result = get_args(base)
            return arguments, result
    raise TypeError(f"{cls.__name__}: derive from Task[Arguments, Result], so that its arguments and result have types")


def _input_schema(owner: str, arguments: TypeAdapter[Any]) -> dict[str, Any]:
    schema = arguments.json_schema(by_alias=True)
    if schema.get("type") != "object":
        raise TypeError(f"{owner}: a tool's arguments must be an object, e.g. a pydantic model")
    return {"additionalProperties": False, **schema}


def _output_schema(result: Any) -> dict[str, Any] | None:
    if isinstance(result, type) and issubclass(result, BaseModel):
        return result.model_json_schema(by_alias=True, mode="serialization")
    return None
