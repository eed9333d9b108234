"""The tools that this bridge offers, in a fixed order, checked when it starts.

A tool that a client would drop (a bad header annotation) or that nobody could validate (a broken schema) ends the start
with a line that names it. Arguments are checked before anything is started: against the advertised schema, then by the
tool's own model, whose validators no schema can express. Schemas never fetch a reference over the network (basic, "JSON
Schema usage").
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import jsonschema
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from mcp.shared.inbound import find_invalid_x_mcp_header
from pydantic import ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from bridge.settings import SettingsError
from bridge.status import OutcomeRules
from workflows.kit import Declaration, Task
from workflows.kit.contract import cut

PAGE_SIZE: Final = 100
"""Tools per page of tools/list."""

_MAX_PROBLEM_CHARS: Final = 500


class Tool:
    """One tool: its declaration, where it runs, and the check of its arguments."""

    def __init__(self, declaration: Declaration, queue: str) -> None:
        """Raises SettingsError: its schemas cannot be used."""
        self.declaration = declaration
        self.queue = declaration.queue or queue
        self._validator = _validator(declaration.name, declaration.input_schema)
        if reason := find_invalid_x_mcp_header(declaration.input_schema):
            raise SettingsError(f"tool {declaration.name}: {reason}")

    @cached_property
    def wire(self) -> dict[str, Any]:
        """The tool as tools/list shows it."""
        declaration = self.declaration
        fields = {
            "name": declaration.name,
            "title": declaration.title,
            "description": declaration.description,
            "inputSchema": declaration.input_schema,
            "outputSchema": declaration.output_schema,
            "annotations": declaration.annotations or None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def arguments_problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with `arguments`, naming the place; None if the tool can take them."""
        try:
            error = jsonschema.exceptions.best_match(self._validator.iter_errors(arguments))
        except (RecursionError, Unresolvable):
            return "the arguments cannot be checked against the tool's schema"
        if error is not None:
            place = ".".join(map(str, error.absolute_path))
            return cut(f"{place}: {error.message}" if place else error.message, _MAX_PROBLEM_CHARS)
        try:
            self.declaration.arguments.validate_python(arguments)
        except ValidationError as invalid:
            first = invalid.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            return cut(f"{place}: {first['msg']}" if place else first["msg"], _MAX_PROBLEM_CHARS)
        return None


class Catalog:
    """All tools by name."""

    def __init__(self, tasks: Iterable[type[Task[Any, Any]]], default_queue: str) -> None:
        """Raises SettingsError: a tool cannot be offered, or two have one name."""
        self._tools: dict[str, Tool] = {}
        for task in tasks:
            tool = Tool(task.declaration, default_queue)
            if tool.declaration.name in self._tools:
                raise SettingsError(f"tool {tool.declaration.name}: declared twice")
            self._tools[tool.declaration.name] = tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def outcome_rules(self, name: str) -> OutcomeRules:
        """What the tool called `name` declares about its ends; a tool that is gone declared nothing."""
        tool = self._tools.get(name)
        return OutcomeRules(frozenset(tool.declaration.declared_errors)) if tool else OutcomeRules()

    def get(self, name: str) -> Tool | None:
        """The tool called `name`."""
        return self._tools.get(name)

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema of the tool's arguments, for the check of `Mcp-Param-*` headers."""
        tool = self._tools.get(name)
        return tool.declaration.input_schema if tool else None

    def page(self, cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
        """The tools after `cursor` and the cursor after them.

        Raises:
            ValueError: `cursor` is none of ours.
        """
        names = list(self._tools)
        start = 0 if cursor is None else names.index(_opened(cursor)) + 1
        page = names[start : start + PAGE_SIZE]
        more = start + PAGE_SIZE < len(names)
        return [self._tools[name].wire for name in page], _cursor(page[-1]) if more else None


def _cursor(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode()


def _opened(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise ValueError("not a cursor") from error


def _validator(name: str, schema: Mapping[str, Any]) -> Validator:
    dialect = schema.get("$schema")
    kind = validator_for(schema, default=Draft202012Validator)
    if (
        dialect is not None
        and kind.META_SCHEMA.get("$schema") != str(dialect).rstrip("#")
        and kind is Draft202012Validator
    ):
        raise SettingsError(f"tool {name}: the JSON Schema dialect {dialect!r} is not supported")
    try:
        kind.check_schema(dict(schema))
    except jsonschema.SchemaError as error:
        raise SettingsError(f"tool {name}: its input schema is not valid: {error.message}") from error
    return kind(dict(schema), registry=Registry())
