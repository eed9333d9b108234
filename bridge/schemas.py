"""A tool's JSON Schema: whether it can be used at all, and what it has against the arguments of a call.

Everything that could only go wrong in a call is looked for at the start: the dialect, the schema itself, and each
reference, which must lead to a schema without a way back to itself that takes no step into the arguments. Nothing is
fetched over the network (basic, "JSON Schema usage"). In a call the first error is all that is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, TypeAlias

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing import Resource, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import Schema, SchemaResource, specification_with

from bridge.keywords import bounded

UNCHECKED: Final = "the arguments cannot be checked against the tool's schema"

QUICK_CHARS: Final = 64 * 1024
"""Arguments of up to this much JSON are checked at once, larger ones beside the event loop."""

_VALUE_CHARS: Final = 32  # what each value counts for, because a check costs by values more than by their characters

_Place: TypeAlias = tuple[SchemaResource, Any]  # and its resolver, whose type has no public name

_DEFAULT: Final = Draft202012Validator.META_SCHEMA["$schema"]
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_TABLES: Final = ("dependentSchemas", "dependencies")
_SAME_PLACE: Final = ("not", "if", "then", "else", "allOf", "anyOf", "oneOf", *_TABLES)


def checked_schema(schema: Mapping[str, Any]) -> Validator:
    """What checks against `schema`.

    Raises:
        ValueError: It cannot be used; the text says why, after "its schema is not valid".
    """
    try:
        dialect = _dialect(schema)
        dialect.check_schema(dict(schema))
        # Without the dialect's name, which would make a reference to the root leave the class that is asked for
        root = {key: value for key, value in schema.items() if key != "$schema"}
        _check_references(root, dialect)
    except SchemaError as error:
        raise ValueError(error.message) from error
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    return bounded(dialect)(root, registry=REGISTRY)


def schema_problem(validator: Validator, arguments: Any) -> str | None:
    """What is wrong with `arguments`, naming the place; None if they fit."""
    try:
        first = next(validator.iter_errors(arguments), None)
        if first is None:
            return None
        error = best_match([first])  # of alternatives, the one that was closest
    except (RecursionError, Unresolvable, ArithmeticError):  # a number may be too large to divide
        return UNCHECKED
    place = ".".join(map(str, error.absolute_path))
    return f"{place}: {error.message}" if place else error.message


def is_quick(arguments: Any) -> bool:
    """Whether `arguments` are small enough to be checked at once."""
    left, values = QUICK_CHARS, [arguments]
    while values:
        value = values.pop()
        left -= _VALUE_CHARS
        if isinstance(value, str):
            left -= len(value)
        elif isinstance(value, dict | list):
            if _VALUE_CHARS * len(value) > left:  # before millions of values are listed
                return False
            if isinstance(value, dict):
                left -= sum(map(len, value))
                value = value.values()
            values.extend(value)
        if left < 0:
            return False
    return True


def _dialect(schema: Mapping[str, Any]) -> type[Validator]:
    """Raises ValueError."""
    named = schema.get("$schema", _DEFAULT)
    dialect = validator_for(schema, default=Draft202012Validator) if isinstance(named, str) else None
    if dialect is None or (dialect is Draft202012Validator and named.rstrip("#") != _DEFAULT):
        raise ValueError(f"the JSON Schema dialect {named!r} is not supported")
    return dialect


def _check_references(root: Mapping[str, Any], dialect: type[Validator]) -> None:
    """Raises ValueError: one leads to no schema, or back to itself at the same place. SchemaError: to a broken one."""
    specification = specification_with(dialect.META_SCHEMA["$schema"])
    resource = specification.create_resource(root)
    schemas, targets = [(resource, REGISTRY.resolver_with_root(resource))], list[_Place]()
    same_place: dict[int, list[int]] = {}  # which schemas each one applies to the very value that it is given
    while schemas or targets:
        is_target = not schemas
        resource, resolver = (schemas or targets).pop()
        contents = resource.contents
        if not isinstance(contents, Mapping) or id(contents) in same_place:
            continue
        if is_target:  # not under a keyword that the check of the root knows to hold a schema
            dialect.check_schema(dict(contents))
        led_to = [_target(contents[keyword], resolver, specification) for keyword in _REFERENCES if keyword in contents]
        same_place[id(contents)] = [id(target.contents) for target, _ in led_to] + list(map(id, _inner(contents)))
        targets += led_to
        schemas += [(each, resolver.in_subresource(each)) for each in resource.subresources()]
    try:
        TopologicalSorter(same_place).prepare()
    except CycleError:
        raise ValueError("a reference leads back to itself") from None


def _target(reference: str, resolver: Any, specification: Specification[Schema]) -> _Place:
    try:
        resolved = resolver.lookup(reference)
        if isinstance(resolved.contents, bool | Mapping):
            return Resource.from_contents(resolved.contents, specification), resolved.resolver
    except (Unresolvable, ValueError, TypeError, AttributeError):  # the last three: through what is no schema
        pass
    raise ValueError(f"the reference {reference!r} leads to no schema in it; none is fetched")


def _inner(schema: Mapping[str, Any]) -> Iterator[Any]:
    """The subschemas for the value that `schema` is for, not for a part of it."""
    for keyword in _SAME_PLACE:
        held = schema.get(keyword)
        if isinstance(held, list):
            yield from held
        elif keyword in _TABLES and isinstance(held, Mapping):
            yield from held.values()
        else:
            yield held
