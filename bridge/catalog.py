"""The tools that this bridge offers, in a fixed order, checked before they are.

A tool that a client would drop (a bad header annotation) or that nobody could validate (a broken schema) is refused,
and all others with it, by a line that names it. Arguments are checked before anything is started: against the
advertised schema, then by the tool's own model, whose validators no schema can express. Large ones are checked beside
the event loop, two calls' at a time, so that one client cannot keep the others waiting.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Final, Self

from jsonschema.protocols import Validator
from mcp.shared.inbound import find_invalid_x_mcp_header
from pydantic import TypeAdapter, ValidationError

from bridge.schemas import checked_schema, is_quick, schema_problem
from bridge.settings import SettingsError
from bridge.status import OutcomeRules
from workflows.kit import Declaration
from workflows.kit.contract import cut
from workflows.kit.declaration import TaskMode
from workflows.kit.delegates import NOBODY, Delegates

PAGE_SIZE: Final = 100
"""Tools per page of tools/list."""

_MAX_PROBLEM_CHARS: Final = 500

_LARGE_CHECKS: Final = ThreadPoolExecutor(2, thread_name_prefix="arguments")
"""Of its own: a check whose caller has gone still counts until it ends, and others' work never waits for one."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool: what the bridge knows of it, where it runs, and the check of its arguments.

    `model_problem` says what the author's own types have against arguments that fit the schema. `positional` names the
    properties that become the workflow's arguments, in order; None is one argument, the call's object. `foreign` is a
    workflow that keeps no lifetime of its own, so that Temporal has to end its run. With `plain_result` a result is
    never taken for a CallToolResult. What is not `encrypted` is written to Temporal as it is, whatever keys there are.
    Who lacks one of `scopes` cannot call it, and is not shown it. `delegates` may see to tasks that are not theirs.
    """

    name: str
    workflow_type: str
    queue: str
    title: str | None = None
    description: str
    annotations: Mapping[str, Any]
    task: TaskMode
    lifetime: timedelta | None = None
    answer_window: timedelta | None = None
    poll_interval: timedelta
    wait_budget: timedelta = timedelta(0)
    client_capabilities: Mapping[str, Any]
    declared_errors: tuple[str, ...] = ()
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    asks_before_handle: bool = False
    positional: tuple[str, ...] | None = None
    foreign: bool = False
    plain_result: bool = False
    encrypted: bool = True
    scopes: tuple[str, ...] = ()
    delegates: Delegates = NOBODY
    model_problem: Callable[[Mapping[str, Any]], str | None] = lambda _arguments: None

    def __post_init__(self) -> None:
        """Raises SettingsError: the schemas cannot be used."""
        _ = self._validator  # a broken schema ends the start, not a call
        if self.output_schema is not None:
            _validator(self.name, self.output_schema, "output")
        if reason := find_invalid_x_mcp_header(self.input_schema):
            raise SettingsError(f"tool {self.name}: {reason}")

    @classmethod
    def of(cls, declaration: Declaration, default_queue: str) -> Self:
        """The tool that a `Task` class declares. Raises SettingsError: its schemas cannot be used."""
        return cls(
            name=declaration.name,
            workflow_type=declaration.name,
            queue=declaration.queue or default_queue,
            title=declaration.title,
            description=declaration.description,
            annotations=declaration.annotations,
            task=declaration.task,
            lifetime=declaration.lifetime,
            answer_window=declaration.answer_window,
            poll_interval=declaration.poll_interval,
            wait_budget=declaration.wait_budget,
            client_capabilities=declaration.client_capabilities,
            declared_errors=declaration.declared_errors,
            input_schema=declaration.input_schema,
            output_schema=declaration.output_schema,
            asks_before_handle=declaration.asks_before_handle,
            scopes=declaration.scopes,
            delegates=declaration.delegates,
            model_problem=partial(_model_problem, declaration.arguments),
        )

    @cached_property
    def wire(self) -> dict[str, Any]:
        """The tool as tools/list shows it."""
        fields = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "annotations": self.annotations or None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    @cached_property
    def _validator(self) -> Validator:
        return _validator(self.name, self.input_schema, "input")

    async def arguments_problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with `arguments`, naming the place; None if the tool can take them."""
        if is_quick(arguments):
            return self._problem(arguments)
        return await asyncio.get_running_loop().run_in_executor(_LARGE_CHECKS, self._problem, arguments)

    def _problem(self, arguments: Mapping[str, Any]) -> str | None:
        problem = schema_problem(self._validator, arguments) or self.model_problem(arguments)
        return problem and cut(problem, _MAX_PROBLEM_CHARS)

    def start_arguments(self, arguments: Mapping[str, Any]) -> list[Any]:
        """The workflow's arguments. Of positional ones, those left out are null, and not passed at the end of the list,
        so that the workflow's own defaults hold.
        """
        if self.positional is None:
            return [dict(arguments)]
        given = [name in arguments for name in self.positional]
        passed = len(given) - given[::-1].index(True) if any(given) else 0
        return [arguments.get(name) for name in self.positional[:passed]]

    @cached_property
    def outcome_rules(self) -> OutcomeRules:
        """What it declares about its ends."""
        return OutcomeRules(frozenset(self.declared_errors), plain_result=self.plain_result)


class Catalog:
    """All tools by name. There is one for everybody, for as long as the process lives; a change of the catalog file
    gives it other tools. Who began with a tool keeps that one.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Raises SettingsError: two tools have one name."""
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise SettingsError(f"tool {tool.name}: declared twice")
            self._tools[tool.name] = tool
        # As text: to Python a schema's 1 and true are equal
        shown = json.dumps([[tool.wire, tool.scopes] for tool in self._tools.values()])
        self._shown = hashlib.sha256(shown.encode()).digest()

    def adopt(self, other: Catalog) -> bool:
        """Offer the tools of `other` from now on, in place of all before. Returns whether tools/list shows a change."""
        changed = self._shown != other._shown
        self._tools, self._shown = other._tools, other._shown
        return changed

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def outcome_rules(self, name: str) -> OutcomeRules:
        """What the tool called `name` declares about its ends; a tool that is gone declared nothing."""
        tool = self._tools.get(name)
        return tool.outcome_rules if tool else OutcomeRules()

    def unencrypted(self, name: str) -> bool | None:
        """Whether the workers of the tool called `name` have no codec; None of a tool that is gone."""
        tool = self._tools.get(name)
        return None if tool is None else not tool.encrypted

    def get(self, name: str) -> Tool | None:
        """The tool called `name`."""
        return self._tools.get(name)

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema of the tool's arguments, for the check of `Mcp-Param-*` headers."""
        tool = self._tools.get(name)
        return tool.input_schema if tool else None

    def scopes(self, name: str) -> tuple[str, ...]:
        """What a caller of the tool called `name` needs beside what every call needs."""
        tool = self._tools.get(name)
        return tool.scopes if tool else ()

    def delegates(self, name: str) -> Delegates:
        """Who may see to tasks of the tool called `name` beside their owners; of a tool that is gone, nobody."""
        tool = self._tools.get(name)
        return tool.delegates if tool else NOBODY

    @property
    def differs(self) -> bool:
        """Whether not everybody is shown the same tools."""
        return any(tool.scopes for tool in self._tools.values())

    def page(
        self, cursor: str | None, has: Callable[[str], bool] = lambda _scope: True
    ) -> tuple[list[dict[str, Any]], str | None]:
        """The tools after `cursor` of those that a caller is shown who `has` some scopes, and the cursor after them.

        Raises:
            ValueError: `cursor` is none of ours.
        """
        names = list(self._tools)
        start = 0 if cursor is None else names.index(_opened(cursor)) + 1
        shown = [name for name in names[start:] if all(map(has, self._tools[name].scopes))]
        page = shown[:PAGE_SIZE]
        return [self._tools[name].wire for name in page], _cursor(page[-1]) if len(shown) > PAGE_SIZE else None


def _model_problem(arguments_type: TypeAdapter[Any], arguments: Mapping[str, Any]) -> str | None:
    try:
        arguments_type.validate_python(arguments)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"{place}: {first['msg']}" if place else first["msg"]
    return None


def _cursor(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode()


def _opened(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise ValueError("not a cursor") from error


def _validator(name: str, schema: Mapping[str, Any], which: str) -> Validator:
    try:
        return checked_schema(schema)
    except ValueError as error:
        raise SettingsError(f"tool {name}: its {which} schema is not valid: {error}") from error
