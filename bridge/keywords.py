"""JSON Schema's keywords, where the usual ones let a caller choose how long a check takes.

One small call must not keep a replica from everybody else. So alternatives are left at their first error, equal items
are found in linear time, and patterns run on the regex engine that pydantic brings, which never backtracks. A pattern
that this engine cannot read (look-around, back-references) runs on Python's, and costs what its author made it cost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from pydantic_core import SchemaError, SchemaValidator, core_schema

Errors: TypeAlias = Iterator[ValidationError]

_USUAL: Final[Mapping[str, Any]] = Draft202012Validator.VALIDATORS


@cache
def bounded(dialect: type[Validator]) -> type[Validator]:
    """`dialect` with the keywords below, each where it means in that dialect what it means in 2020-12."""
    ours = {name: keyword for name, keyword in _KEYWORDS.items() if dialect.VALIDATORS.get(name) is _USUAL[name]}
    extended: type[Validator] = extend(dialect, ours)  # type: ignore[no-untyped-call]
    return extended


@cache
def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text contains a match of `pattern`. Raises re.error: it is no pattern."""
    try:
        schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True)
        return SchemaValidator(schema).isinstance_python
    except SchemaError:
        search = re.compile(pattern).search
        return lambda text: search(text) is not None


def _any_of(validator: Any, branches: list[Any], instance: Any, _schema: Any) -> Errors:
    problems = []
    for index, branch in enumerate(branches):
        problem = next(validator.descend(instance, branch, schema_path=index), None)
        if problem is None:
            return
        problems.append(problem)
    yield ValidationError(f"{instance!r} is not valid under any of the given schemas", context=problems)


def _one_of(validator: Any, branches: list[Any], instance: Any, _schema: Any) -> Errors:
    valid, problems = [], []
    for index, branch in enumerate(branches):
        problem = next(validator.descend(instance, branch, schema_path=index), None)
        if problem is None:
            valid.append(branch)
        else:
            problems.append(problem)
    if not valid:
        yield ValidationError(f"{instance!r} is not valid under any of the given schemas", context=problems)
    elif len(valid) > 1:
        yield ValidationError(f"{instance!r} is valid under each of {', '.join(map(repr, valid))}")


def _unique_items(validator: Any, unique: bool, instance: Any, _schema: Any) -> Errors:
    if unique and validator.is_type(instance, "array") and len(set(map(_canonical, instance))) < len(instance):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Errors:
    if validator.is_type(instance, "string") and not matcher(pattern)(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: dict[str, Any], instance: Any, _schema: Any) -> Errors:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        matches = matcher(pattern)
        for name, value in instance.items():
            if matches(name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Errors:
    if (patterns := schema.get("patternProperties")) and validator.is_type(instance, "object"):
        # The usual keyword would search for the patterns with Python's engine, so it is told of names only
        matchers = list(map(matcher, patterns))
        matched = {name: True for name in instance if any(matches(name) for matches in matchers)}
        schema = {"properties": schema.get("properties", {}) | matched}
    yield from _USUAL["additionalProperties"](validator, allowed, instance, schema)


_KEYWORDS: Final = {
    "additionalProperties": _additional_properties,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "uniqueItems": _unique_items,
}

_encode: Final = json.JSONEncoder(sort_keys=True).encode


def _canonical(item: Any) -> str:
    """One text for all that JSON Schema calls equal. A text, because a caller can choose numbers of one hash."""
    return _encode(_whole(item))


def _whole(value: Any) -> Any:
    """`value` with 1 for 1.0, for these are equal."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return value
