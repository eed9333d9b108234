"""The catalog file: workflows that exist already, offered as tools without a line of theirs changed.

A TOML table for each tool says which workflow it is, on which queue, what it takes, and by which policies it is served.
Nothing is guessed and nothing is ignored: what is missing, misspelt or of a wrong shape makes the file unusable, with
one line that names file, tool and key, and says what is accepted.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from bridge.catalog import Tool
from bridge.settings import SettingsError
from workflows.kit.declaration import DEFAULT_POLL_INTERVAL, SCOPE, TaskMode
from workflows.kit.delegates import NOBODY, Delegates

ReadText = Callable[[Path], str]
"""Gives the text of a file. Raises OSError; ValueError, it is no UTF-8."""

MAX_DURATION: Final = timedelta(days=3650)

CAPABILITIES: Final = ("elicitation", "sampling", "roots", "extensions", "experimental")
"""What a client may declare in MCP; a tool that needed anything else would refuse everybody."""

_UNITS: Final[Mapping[str, timedelta]] = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_DURATION: Final = re.compile(rf"(\d{{1,9}})({'|'.join(_UNITS)})", re.ASCII)
_DURATIONS: Final = 'a duration of at most 3650 days, such as "500ms", "90s", "15m", "12h" or "7d"'
_SCHEMA: Final = "a JSON Schema, as a table"
_SCHEMA_FILE: Final = "the path of a JSON Schema in JSON, relative to the catalog file"


def _duration(value: Any) -> timedelta:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("not a duration")
    return int(match[1]) * _UNITS[match[2]]


Duration = Annotated[timedelta, BeforeValidator(_duration), Field(gt=timedelta(0), le=MAX_DURATION)]
Capability = Annotated[str, StringConstraints(pattern=rf"^({'|'.join(CAPABILITIES)})$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class Annotations(_Table):
    """MCP tool annotations, by the names that they have there."""

    model_config = ConfigDict(alias_generator=to_camel)

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class Entry(_Table):
    """One tool of the file. Each field's description says what is accepted, and ends up in error lines."""

    workflow: Name = Field(description="the workflow's type, of 1 to 200 characters")
    queue: Name = Field(description="the task queue that its workers poll, of 1 to 200 characters")
    description: str = Field(min_length=1, description="what the tool does, for the model")
    title: str | None = Field(None, description="the tool's name for people")
    annotations: Annotations = Field(
        Annotations(),
        description=f"a table of MCP tool annotations: {', '.join(map(to_camel, Annotations.model_fields))}",
    )
    task: TaskMode = Field("optional", description=f"one of {', '.join(get_args(TaskMode))}")
    lifetime: Duration | None = Field(None, description=_DURATIONS)
    keeps_lifetime: bool = Field(False, description="true or false")
    answer_window: Duration | None = Field(None, description=_DURATIONS)
    poll_interval: Duration = Field(DEFAULT_POLL_INTERVAL, description=_DURATIONS)
    wait_budget: Duration | None = Field(None, description=_DURATIONS)
    asks_before_handle: bool = Field(False, description="true or false")
    client_capabilities: dict[Capability, dict[str, Any]] = Field(
        {}, description=f"a table of tables called {', '.join(CAPABILITIES)}, e.g. {{ elicitation = {{}} }}"
    )
    declared_errors: list[str] = Field([], description="a list of types of application errors")
    input_schema: dict[str, Any] | None = Field(None, description=_SCHEMA)
    input_schema_file: str | None = Field(None, description=_SCHEMA_FILE)
    output_schema: dict[str, Any] | None = Field(None, description=_SCHEMA)
    output_schema_file: str | None = Field(None, description=_SCHEMA_FILE)
    arguments: Literal["object"] | list[str] = Field(
        "object", description='"object", or a list of names of properties of the input schema'
    )
    result: Literal["auto", "value"] = Field("auto", description="one of auto, value")
    encrypted: bool = Field(True, description="true or false")
    scopes: list[Annotated[str, StringConstraints(pattern=SCOPE)]] = Field(
        [], description="a list of OAuth scopes, such as deploy:production"
    )
    delegates: Delegates = Field(
        NOBODY, description="a table of lists of groups: read, answer, cancel; names of 1 to 256 printable characters"
    )


class CatalogFile(_Table):
    """The whole file."""

    tools: dict[Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f\x7f]{1,128}$")], Entry] = Field(
        min_length=1, description="one table [tools.NAME] for each tool; a name has 1 to 128 visible characters"
    )


def read_text(file: Path) -> str:
    """See `ReadText`. Raises SettingsError: it is no file, such as a pipe, of which a read may not return."""
    if file.exists() and not file.is_file():
        raise SettingsError(f"{file} is not a file")
    return file.read_text("utf-8")


def read_catalog(file: Path, read: ReadText = read_text) -> list[Tool]:
    """The tools of a catalog file, in its order; `read` reads it and the schema files that it names.

    Raises:
        SettingsError: It cannot be read, or says what cannot be offered.
    """
    try:
        return _tools(file, read)
    except RecursionError:
        raise SettingsError(f"catalog {file} nests too deeply") from None


def _tools(file: Path, read: ReadText) -> list[Tool]:
    try:
        content = tomllib.loads(read(file))
    except OSError as error:
        raise SettingsError(f"catalog {file} cannot be read: {error.strerror}") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise SettingsError(f"catalog {file} is not TOML: {error}") from error
    try:
        catalog = CatalogFile.model_validate(content)
        return [_tool(name, entry, file.parent, read) for name, entry in catalog.tools.items()]
    except ValidationError as error:
        raise SettingsError(f"catalog {file}: {_explained(error)}") from None
    except SettingsError as error:
        raise SettingsError(f"catalog {file}: {error}") from error


def _tool(name: str, entry: Entry, folder: Path, read: ReadText) -> Tool:
    def schema_of(key: str, inline: dict[str, Any] | None, file: str | None) -> dict[str, Any] | None:
        return _schema(name, key, inline, None if file is None else folder / file, read)

    schema = schema_of("input_schema", entry.input_schema, entry.input_schema_file)
    if schema is None:
        raise SettingsError(f"tool {name}: input_schema is missing: {_SCHEMA}, or input_schema_file: {_SCHEMA_FILE}")
    if schema.get("type") != "object":
        raise SettingsError(f'tool {name}: input_schema must have the type "object": a call\'s arguments are one')
    if entry.asks_before_handle and not entry.keeps_lifetime:
        # Of a task that was not handed over yet nobody can say that it was abandoned, unless it keeps its own time
        raise SettingsError(
            f"tool {name}: asks_before_handle needs keeps_lifetime = true: a question that nobody answers is ended by "
            "the workflow itself"
        )
    if entry.arguments != "object":
        schema = _closed(name, schema, entry.arguments)
    return Tool(
        name=name,
        workflow_type=entry.workflow,
        queue=entry.queue,
        title=entry.title,
        description=entry.description,
        annotations=entry.annotations.model_dump(by_alias=True, exclude_none=True),
        task=entry.task,
        lifetime=entry.lifetime,
        answer_window=entry.answer_window,
        poll_interval=entry.poll_interval,
        wait_budget=entry.wait_budget or timedelta(0),
        client_capabilities=entry.client_capabilities,
        declared_errors=tuple(entry.declared_errors),
        input_schema=schema,
        output_schema=schema_of("output_schema", entry.output_schema, entry.output_schema_file),
        asks_before_handle=entry.asks_before_handle,
        positional=None if entry.arguments == "object" else tuple(entry.arguments),
        foreign=not entry.keeps_lifetime,
        plain_result=entry.result == "value",
        encrypted=entry.encrypted,
        scopes=tuple(entry.scopes),
        delegates=entry.delegates,
    )


def _closed(name: str, schema: dict[str, Any], arguments: list[str]) -> dict[str, Any]:
    """`schema` without room for arguments that no position is for: they would be dropped in silence."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        properties = {}
    if set(arguments) != set(properties) or len(arguments) != len(properties):
        known = ", ".join(properties) or "none"
        raise SettingsError(f"tool {name}: arguments must name every property of the input schema once ({known})")
    if schema.get("additionalProperties", False) is not False:
        raise SettingsError(
            f"tool {name}: input_schema must not allow additionalProperties: arguments has no position for them"
        )
    for key in ("patternProperties", "$ref"):  # both let in more than properties lists, the second in older dialects
        if key in schema:
            raise SettingsError(f"tool {name}: input_schema must not have {key}: arguments has no position for it")
    return {**schema, "additionalProperties": False}


def _schema(
    name: str, key: str, inline: dict[str, Any] | None, file: Path | None, read: ReadText
) -> dict[str, Any] | None:
    if inline is not None and file is not None:
        raise SettingsError(f"tool {name}: {key} and {key}_file are both set; keep one")
    schema = inline if file is None else _loaded(f"tool {name}: {key}_file", file, read)
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError):  # TOML has dates, and both have readers that take infinities
        raise SettingsError(f"tool {name}: {key} must be {_SCHEMA}, of values that JSON has") from None
    return schema


def _loaded(where: str, path: Path, read: ReadText) -> dict[str, Any]:
    try:
        schema = json.loads(read(path))
    except OSError as error:
        raise SettingsError(f"{where} {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{where} {path} is not JSON: {error}") from error
    except RecursionError:
        raise SettingsError(f"{where} {path} nests too deeply") from None
    if not isinstance(schema, dict):
        raise SettingsError(f"{where} {path} must hold a JSON object")
    return schema


def _explained(error: ValidationError) -> str:
    """The first problem as one line; all of them would bury it."""
    problem = error.errors(include_url=False, include_input=False)[0]
    place = [str(part) for part in problem["loc"]]
    if len(place) == 2:
        return f"tool {place[1]} must be a table"
    if len(place) == 1 or place[2] == "[key]":
        return _line("", CatalogFile, place[0], problem["type"])
    return _line(f"tool {place[1]}: ", Entry, place[2], problem["type"])


def _line(where: str, table: type[BaseModel], key: str, problem: str) -> str:
    if key not in table.model_fields:
        meant = get_close_matches(key, table.model_fields, 1)
        return f"{where}{key} is no key; {f'is {meant[0]} meant?' if meant else _known(table)}"
    accepted = table.model_fields[key].description
    return f"{where}{key} is missing: {accepted}" if problem == "missing" else f"{where}{key} must be {accepted}"


def _known(table: type[BaseModel]) -> str:
    return f"there are {', '.join(table.model_fields)}"
