"""Forms as HTML: the fields of a schema that MCP allows, and what a browser sent, as the content of an answer.

Pure. What was entered in a secret field never goes back into a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

PREFIX: Final = "f."
"""Before the names of fields, which the workflow chose, in what a browser sends."""

_TYPES: Final = {"email": "email", "uri": "url", "date": "date"}
"""A date-time is typed: browsers know no offset."""

_LONG: Final = 120
"""Texts that may be longer get more than a line."""


@dataclass(frozen=True, slots=True)
class Option:
    """One of several values."""

    value: str
    title: str
    chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field as the page shows it. `kind` is `line`, `text`, `secret`, `one` (of `options`), or `many`."""

    name: str
    kind: str
    title: str
    description: str = ""
    required: bool = False
    type: str = "text"
    value: str = ""
    options: Sequence[Option] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)


Posted = Mapping[str, Sequence[str]]


def fields(form: Mapping[str, Any], posted: Posted | None = None) -> list[Field]:
    """The fields of `form`, with what was entered before, or else their defaults."""
    required = form.get("required", ())
    return [_field(name, prop, name in required, posted) for name, prop in form["properties"].items()]


def content(form: Mapping[str, Any], posted: Posted) -> dict[str, Any]:
    """What was entered, as the content of an answer. What cannot be read as its type stays text, or a list where there
    may be but one value, which the check of the content refuses by name.
    """
    read = dict[str, Any]()
    required = form.get("required", ())
    for name, prop in form["properties"].items():
        values = posted.get(PREFIX + name, [])
        if prop["type"] == "array" or len(values) > 1:
            if values or name in required:
                read[name] = list(values)
        elif values and (values[0] or (prop["type"] == "string" and name in required and not _options(prop))):
            read[name] = _value(prop["type"], values[0])
    return read


def _value(kind: str, text: str) -> Any:
    if kind == "boolean":
        return {"true": True, "false": False}.get(text, text)
    if kind in {"integer", "number"}:
        for number in (int, float):
            try:
                return number(text)
            except ValueError:
                continue
        return text
    return text.replace("\r\n", "\n")


def _field(name: str, prop: Mapping[str, Any], required: bool, posted: Posted | None) -> Field:
    told: dict[str, Any] = {
        "name": PREFIX + name,
        "title": prop.get("title") or name,
        "description": prop.get("description") or "",
    }
    default = [] if posted is not None or "default" not in prop else _texts(prop["default"])
    entered = default if posted is None else list(posted.get(PREFIX + name, ()))
    if prop.get("writeOnly"):
        return Field(**told, kind="secret", required=required, attributes=_lengths(prop))
    if prop["type"] == "array":
        return Field(**told, kind="many", options=_chosen(_options(prop.get("items", {}), "anyOf"), entered))
    options = [("true", "Yes"), ("false", "No")] if prop["type"] == "boolean" else _options(prop)
    if options:
        if not required:
            options, entered = [("", "No answer"), *options], entered or [""]
        return Field(**told, kind="one", required=required, options=_chosen(options, entered))
    value = entered[0] if entered else ""
    if prop["type"] in {"integer", "number"}:
        step = "1" if prop["type"] == "integer" else "any"
        bounds = {"min": prop.get("minimum"), "max": prop.get("maximum"), "step": step}
        return Field(**told, kind="line", type="number", required=required, value=value, attributes=_set(bounds))
    long = prop.get("maxLength", _LONG) > _LONG and "format" not in prop
    kind = "text" if long else "line"
    input_type = _TYPES.get(prop.get("format", ""), "text")
    return Field(**told, kind=kind, type=input_type, required=required, value=value, attributes=_lengths(prop))


def _options(prop: Mapping[str, Any], titled: str = "oneOf") -> list[tuple[str, str]]:
    if plain := prop.get("enum"):
        return list(zip(plain, prop.get("enumNames", plain), strict=False))
    return [(option["const"], option.get("title", option["const"])) for option in prop.get(titled, ())]


def _chosen(options: Sequence[tuple[str, str]], entered: Sequence[str]) -> list[Option]:
    return [Option(value, title, value in entered) for value, title in options]


def _texts(default: Any) -> list[str]:
    values = default if isinstance(default, list) else [default]
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


def _lengths(prop: Mapping[str, Any]) -> dict[str, Any]:
    return _set({"minlength": prop.get("minLength"), "maxlength": prop.get("maxLength")})


def _set(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
