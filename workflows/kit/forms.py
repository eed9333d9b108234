"""Forms: the flat objects of primitive properties that MCP lets a server ask for (elicitation, form mode).

`Form` is refused when its class is defined, not when a person is waiting for it: whatever the restricted schema cannot
express is a `TypeError` that names the field. `content_problem` checks an answer against such a schema; bridge and
workflow use this one function, so that an answer which was acknowledged is an answer that the workflow accepts. It
raises for no answer to a schema that `check_schema` took, whoever wrote either.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Mapping
from datetime import date, datetime
from typing import Any, Final, TypeGuard
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from .contract import cut

_SCALAR_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "array": frozenset({"items", "minItems", "maxItems"}),
}
_COMMON_KEYWORDS: Final = frozenset({"type", "title", "description", "default"})
_LENGTHS: Final = ("minLength", "maxLength", "minItems", "maxItems")
_BOUNDS: Final = ("minimum", "maximum")
_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
_MAX_EMAIL_CHARS: Final = 320
_MAX_EXACT_INTEGER: Final = 2**53
_MAX_SHOWN_OPTIONS_CHARS: Final = 300
_MAX_SHOWN_NAME_CHARS: Final = 100
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


class Form(BaseModel):
    """Base of a question's answer: fields of str, int, float, bool, date, datetime, an enum or literal of strings, or a
    list of such an enum; each may be optional. Raises `TypeError` at class definition for anything else.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.requested_schema()

    @classmethod
    def requested_schema(cls) -> dict[str, Any]:
        """The `requestedSchema` of this form: `{type: "object", properties, required?}`."""
        return form_schema(cls)


def form_schema(form: type[BaseModel], secret: Collection[str] = ()) -> dict[str, Any]:
    """The schema of a form whose fields `secret` are texts of which pydantic says more than MCP's schemas have.

    Raises:
        TypeError: A field is none that a form can have.
    """
    schema = form.model_json_schema(by_alias=True)
    definitions = schema.get("$defs", {})
    properties = dict[str, dict[str, Any]]()
    for name, prop in schema.get("properties", {}).items():
        plain = _inlined(prop, definitions)
        if name in secret:
            plain = {keyword: value for keyword, value in plain.items() if keyword not in {"format", "writeOnly"}}
        properties[name] = _primitive(form.__name__, name, plain)
    requested: dict[str, Any] = {"type": "object", "properties": properties}
    if schema.get("required"):
        requested["required"] = schema["required"]
    return requested


def choice_schema(options: Mapping[str, str], *, title: str) -> dict[str, Any]:
    """The `requestedSchema` of one choice: a property `choice` whose values are the keys of `options`, titled by its
    values.
    """
    titled = [{"const": value, "title": label} for value, label in options.items()]
    return {
        "type": "object",
        "properties": {"choice": {"type": "string", "title": title, "oneOf": titled}},
        "required": ["choice"],
    }


def check_schema(owner: str, schema: object) -> None:
    """Raises TypeError if `schema` is not the `requestedSchema` of a form; the message starts with `owner`."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or schema.get("type") != "object" or not isinstance(properties, Mapping):
        raise TypeError(f"{owner}: a form's schema is an object schema with properties")
    if not _are_strings(schema.get("required", [])):
        raise TypeError(f"{owner}: required must be a list of names")
    for name, prop in properties.items():
        if not isinstance(prop, Mapping):
            raise TypeError(f"{owner}.{name}: a property is a schema")
        _primitive(owner, name, dict(prop))


def content_problem(schema: Mapping[str, Any], content: object) -> str | None:
    """What is wrong with an accepted `content` for a form's `schema`, naming the property; None if nothing is."""
    if not isinstance(content, Mapping):
        return "content must be an object"
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in content:
            return f"{name}: is required"
    for name, value in content.items():
        if name not in properties:
            return f"{cut(name, _MAX_SHOWN_NAME_CHARS)}: is not part of the form"
        if problem := _value_problem(properties[name], value):
            return f"{name}: {problem}"
    return None


def _inlined(prop: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """`prop` with a reference to an enum replaced by the enum, and `X | null` by `X` (an optional property is left out
    instead).
    """
    if "$ref" in prop:
        target = definitions[prop["$ref"].rsplit("/", 1)[-1]]
        prop = {**_inlined(target, definitions), **{k: v for k, v in prop.items() if k != "$ref"}}
    if "anyOf" in prop:
        arms = [arm for arm in prop["anyOf"] if arm.get("type") != "null"]
        if len(arms) == 1:
            outer = {k: v for k, v in prop.items() if k != "anyOf" and not (k == "default" and v is None)}
            prop = {**_inlined(arms[0], definitions), **outer}
    if isinstance(prop.get("items"), dict):
        prop = {**prop, "items": _inlined(prop["items"], definitions)}
    if "const" in prop and "enum" not in prop:
        prop = {
            "enum": [prop["const"]],
            "type": "string",
            **{k: v for k, v in prop.items() if k not in {"const", "type"}},
        }
    return prop


def _primitive(form: str, name: str, prop: dict[str, Any]) -> dict[str, Any]:
    """`prop` if MCP's primitive schemas can express it.

    Raises:
        TypeError: They cannot; the message names the form and the field.
    """
    kind = prop.get("type")
    if not isinstance(kind, str) or kind not in _SCALAR_KEYWORDS:
        raise TypeError(
            f"{form}.{name}: a form field must be a string, a number, an integer, a boolean, an enum of strings, or a "
            "list of such an enum"
        )
    allowed = _SCALAR_KEYWORDS[kind] | _COMMON_KEYWORDS
    if unknown := sorted(set(prop) - allowed):
        raise TypeError(f"{form}.{name}: MCP's form schema has no {unknown[0]!r} for a {kind} field")
    _check_keywords(f"{form}.{name}", prop)
    if kind == "array":
        items = prop["items"] if isinstance(prop.get("items"), dict) else {}
        if not (
            _are_strings(items.get("enum", [])) and _are_options(items.get("anyOf", [])) and _options(items, "anyOf")
        ):
            raise TypeError(f"{form}.{name}: a list field must be a list of an enum of strings")
        prop = {**prop, "items": {k: v for k, v in items.items() if k in {"type", "enum", "anyOf"}}}
    return prop


def _check_keywords(field: str, prop: Mapping[str, Any]) -> None:
    """Raises TypeError, which starts with `field`, if a keyword that an answer is checked by has no usable value."""
    for keyword in _LENGTHS:
        if keyword in prop and not (_is_integer(prop[keyword]) and 0 <= prop[keyword] <= sys.maxsize):
            raise TypeError(f"{field}: {keyword} must be an integer that is not negative")
    for keyword in _BOUNDS:
        if keyword in prop and not _is_number(prop[keyword]):
            raise TypeError(f"{field}: {keyword} must be a number")
    if "format" in prop and not (isinstance(prop["format"], str) and prop["format"] in _FORMATS):
        shown = cut(repr(prop["format"]), _MAX_SHOWN_OPTIONS_CHARS)
        raise TypeError(f"{field}: format {shown} is not one of {', '.join(sorted(_FORMATS))}")
    if not _are_strings(prop.get("enum", [])):
        raise TypeError(f"{field}: an enum field must have string values")
    if not _are_options(prop.get("oneOf", [])):
        raise TypeError(f"{field}: oneOf must be a list of options, each a const and perhaps a title, both strings")
    names = prop.get("enumNames", prop.get("enum", []))
    if not _are_strings(names) or len(names) != len(prop.get("enum", [])):
        raise TypeError(f"{field}: enumNames must have a name for each value of enum")


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    """Whether a JSON reader of any language can hold it: no NaN, no infinity, nothing beyond the largest double."""
    return (_is_integer(value) or isinstance(value, float)) and abs(value) <= sys.float_info.max


def _are_strings(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _are_options(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(option, Mapping) and _are_strings([option.get("const"), option.get("title", "")]) for option in value
    )


def _value_problem(prop: Mapping[str, Any], value: object) -> str | None:
    """What is wrong with one property's value, in words; None if nothing is."""
    kind = prop.get("type")
    if kind == "string":
        return _string_problem(prop, value)
    if kind == "boolean":
        return None if isinstance(value, bool) else "must be true or false"
    if kind in {"integer", "number"}:
        return _number_problem(prop, value)
    if kind == "array":
        return _list_problem(prop, value)
    return None


def _string_problem(prop: Mapping[str, Any], value: object) -> str | None:
    if not isinstance(value, str):
        return "must be a string"
    options = _options(prop, "oneOf")
    if options and value not in options:
        return cut(f"must be one of {', '.join(options)}", _MAX_SHOWN_OPTIONS_CHARS)
    if len(value) < prop.get("minLength", 0):
        return f"must have at least {prop['minLength']} characters"
    if len(value) > prop.get("maxLength", len(value)):
        return f"must have at most {prop['maxLength']} characters"
    return None if _matches_format(prop.get("format"), value) else f"must be a valid {prop['format']}"


def _number_problem(prop: Mapping[str, Any], value: object) -> str | None:
    wanted = "must be an integer" if prop["type"] == "integer" else "must be a number"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return wanted
    if isinstance(value, float) and not _fits(value, whole=prop["type"] == "integer"):
        return wanted
    if isinstance(value, int) and prop["type"] == "number" and abs(value) > sys.float_info.max:
        return "must be a number that is not so large"
    if "minimum" in prop and value < prop["minimum"]:
        return f"must be at least {prop['minimum']}"
    if "maximum" in prop and value > prop["maximum"]:
        return f"must be at most {prop['maximum']}"
    return None


def _fits(value: float, *, whole: bool) -> bool:
    """Whether a float is finite, and, where an integer is wanted, exactly one."""
    return math.isfinite(value) and (not whole or (value.is_integer() and abs(value) <= _MAX_EXACT_INTEGER))


def _is_email(value: str) -> bool:
    """Whether it looks like an address. No pattern: one that looks for the dot takes time quadratic in the length."""
    local, _, domain = value.partition("@")
    well_formed = bool(local) and "@" not in domain and "." in domain.strip(".") and not any(map(str.isspace, value))
    return well_formed and len(value) <= _MAX_EMAIL_CHARS


def _list_problem(prop: Mapping[str, Any], value: object) -> str | None:
    if not isinstance(value, list):
        return "must be a list"
    options = _options(prop["items"], "anyOf")
    if any(item not in options for item in value):
        return cut(f"must only have values of {', '.join(options)}", _MAX_SHOWN_OPTIONS_CHARS)
    if len(value) < prop.get("minItems", 0):
        return f"must have at least {prop['minItems']} values"
    if len(value) > prop.get("maxItems", len(value)):
        return f"must have at most {prop['maxItems']} values"
    return None


def _options(schema: Mapping[str, Any], titled: str) -> list[str]:
    return list(schema.get("enum", ())) or [option["const"] for option in schema.get(titled, ())]


def _matches_format(form: str | None, value: str) -> bool:
    try:
        if form == "date":
            return _DATE.fullmatch(value) is not None and bool(date.fromisoformat(value))
        if form == "date-time":
            return _DATE_TIME.fullmatch(value) is not None and bool(datetime.fromisoformat(value.upper()))
        if form == "uri":
            return bool(urlsplit(value).scheme)
        if form == "email":
            return _is_email(value)
    except ValueError:
        return False
    return True
