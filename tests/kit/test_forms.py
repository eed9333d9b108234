"""Forms: what MCP's primitive schemas can express, and the check of answers that bridge and workflow share."""

from __future__ import annotations

import time
from datetime import date, datetime
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import AnyUrl, BaseModel, Field, create_model

from workflows.kit import Form
from workflows.kit.forms import check_schema, choice_schema, content_problem


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Everything(Form):
    name: str = Field(min_length=2, max_length=5, title="Your name", description="As in the passport")
    age: int = Field(ge=0, le=150)
    ratio: float = 0.5
    agreed: bool
    colour: Colour
    level: Literal["low", "high"] = "low"
    only: Literal["one"] = "one"
    tags: list[Colour] = Field(default_factory=list, min_length=1, max_length=2)
    born: date | None = None
    at: datetime | None = None
    site: AnyUrl | None = None
    nickname: str | None = None


VALID: dict[str, Any] = {"name": "Anna", "age": 3, "agreed": True, "colour": "red"}


def test_the_schema_is_flat_and_primitive() -> None:
    schema = Everything.requested_schema()
    assert schema["type"] == "object"
    assert schema["required"] == ["name", "age", "agreed", "colour"]
    properties = schema["properties"]
    assert properties["name"] == {
        "type": "string",
        "title": "Your name",
        "description": "As in the passport",
        "minLength": 2,
        "maxLength": 5,
    }
    assert properties["colour"]["enum"] == ["red", "blue"]
    assert properties["only"]["enum"] == ["one"]
    assert properties["tags"]["items"] == {"type": "string", "enum": ["red", "blue"]}
    assert properties["born"]["format"] == "date"
    assert properties["nickname"] == {"type": "string", "title": "Nickname"}
    assert "$ref" not in str(schema)
    assert "anyOf" not in str(schema)


class Nested(BaseModel):
    inner: str


class Number(Enum):
    ONE = 1


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (Nested, ...),
        (list[str], ...),
        (list[int], ...),
        (list[Nested], ...),
        (dict[str, str], ...),
        (str | int, ...),
        (Number, ...),
        (Annotated[str, Field(pattern="a+")], ...),
        (Annotated[int, Field(gt=1)], ...),
        (Annotated[float, Field(multiple_of=0.5)], ...),
        (bytes, ...),
        (tuple[str, str], ...),
    ],
    ids=str,
)
def test_what_mcp_cannot_express_is_refused_at_definition_naming_the_field(annotation: Any, default: Any) -> None:
    with pytest.raises(TypeError, match=r"Bad\.field"):
        create_model("Bad", __base__=Form, field=(annotation, default))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"age": 3.0}, None),
        ({"tags": ["red"]}, None),
        ({"born": "2026-07-28", "at": "2026-07-28T10:00:00Z", "site": "https://example.com/x"}, None),
        ({"name": 42}, "name: must be a string"),
        ({"name": None}, "name: must be a string"),
        ({"name": "A"}, "name: must have at least 2 characters"),
        ({"name": "Annabel"}, "name: must have at most 5 characters"),
        ({"age": -1}, "age: must be at least 0"),
        ({"age": 151}, "age: must be at most 150"),
        ({"age": "42"}, "age: must be an integer"),
        ({"age": 1.5}, "age: must be an integer"),
        ({"age": True}, "age: must be an integer"),
        ({"ratio": "x"}, "ratio: must be a number"),
        ({"agreed": "yes"}, "agreed: must be true or false"),
        ({"agreed": 1}, "agreed: must be true or false"),
        ({"colour": "green"}, "colour: must be one of red, blue"),
        ({"tags": "red"}, "tags: must be a list"),
        ({"tags": []}, "tags: must have at least 1 values"),
        ({"tags": ["red", "blue", "red"]}, "tags: must have at most 2 values"),
        ({"tags": ["green"]}, "tags: must only have values of red, blue"),
        ({"tags": [["red"]]}, "tags: must only have values of red, blue"),
        ({"born": "28.7.2026"}, "born: must be a valid date"),
        ({"born": "20260728"}, "born: must be a valid date"),
        ({"born": "2026-W01-1"}, "born: must be a valid date"),
        ({"born": "2026-02-30"}, "born: must be a valid date"),
        ({"at": "2026-07-28T10:00:00"}, "at: must be a valid date-time"),
        ({"site": "example"}, "site: must be a valid uri"),
        ({"nested": {"a": 1}}, "nested: is not part of the form"),
        ({"extra": "x"}, "extra: is not part of the form"),
    ],
    ids=str,
)
def test_an_answer_is_checked_against_its_form(change: dict[str, Any], problem: str | None) -> None:
    assert content_problem(Everything.requested_schema(), VALID | change) == problem


@pytest.mark.parametrize("missing", list(VALID))
def test_a_missing_required_property_is_named(missing: str) -> None:
    content = {name: value for name, value in VALID.items() if name != missing}
    assert content_problem(Everything.requested_schema(), content) == f"{missing}: is required"


@pytest.mark.parametrize("content", [None, [], "x", 7, True], ids=str)
def test_content_that_is_no_object_is_refused(content: Any) -> None:
    assert content_problem(Everything.requested_schema(), content) == "content must be an object"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 10**400])
def test_numbers_out_of_this_world_are_answers_not_crashes(number: float) -> None:
    assert content_problem(Everything.requested_schema(), VALID | {"age": number})
    content_problem(Everything.requested_schema(), VALID | {"ratio": number})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"age": 1e308}, "age: must be an integer"),
        ({"ratio": 10**400}, "ratio: must be a number that is not so large"),
        ({"ratio": 10**300}, None),
    ],
    ids=["float-as-integer", "integer-beyond-float", "large-integer"],
)
def test_bridge_and_form_agree_on_large_numbers(content: dict[str, Any], problem: str | None) -> None:
    """An answer that is acknowledged is one that the form takes."""
    assert content_problem(Everything.requested_schema(), VALID | content) == problem
    if problem is None:
        Everything.model_validate(VALID | content)


def test_a_long_value_is_checked_in_time_linear_in_its_length() -> None:
    """A pattern for addresses took 12 s for 30 KB: the whole bridge stood still."""
    started = time.monotonic()
    assert content_problem(Mail.requested_schema(), {"to": "a@" + "." * 3_000_000 + "@"})
    assert time.monotonic() - started < 10


def test_a_refusal_does_not_repeat_hundreds_of_options() -> None:
    schema = choice_schema({f"option-{number}": "" for number in range(3000)}, title="Which")
    assert len(content_problem(schema, {"choice": "x"}) or "") < 500


def test_a_choice_shows_labels_and_takes_values() -> None:
    schema = choice_schema({"a": "The first", "b": "The second"}, title="Which")
    assert content_problem(schema, {"choice": "b"}) is None
    assert content_problem(schema, {"choice": "The second"}) == "choice: must be one of a, b"


class Mail(Form):
    to: str = Field(json_schema_extra={"format": "email"})


@pytest.mark.parametrize(("value", "fits"), [("a@b.example", True), ("a b@c.d", False), ("a@b", False), ("", False)])
def test_an_email_must_look_like_one(value: str, fits: bool) -> None:
    assert (content_problem(Mail.requested_schema(), {"to": value}) is None) is fits


def test_the_deprecated_names_of_an_enum_may_be_asked_for_one_for_each_value() -> None:
    """`enumNames` is how revisions before 2025-11-25 title the values (LegacyTitledEnumSchema)."""
    field = {"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"]}
    check_schema("Old", {"type": "object", "properties": {"field": field}})
    with pytest.raises(TypeError, match=r"Old\.field: enumNames"):
        check_schema("Old", {"type": "object", "properties": {"field": {**field, "enumNames": ["First"]}}})


def form(prop: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"field": prop}, **more}


OPTION = {"const": "a", "title": "A"}
JSON_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 1.5, -0.0, 10**400, 1e308, "", "a", "5", "\ud800", "2026-02-30", "http://[", [], ["a"],
    [1], [None], [[]], [{}], [OPTION], [{"title": "A"}], [{"const": 1}], [{"const": "a", "title": 1}], {}, {"a": 1},
    {"const": "a"}, {"enum": ["a"]}, {"enum": "a"}, {"enum": ["a"], "anyOf": 5}, {"anyOf": [OPTION]}, {"anyOf": "a"},
    {"anyOf": [{"title": "A"}]}, {"enum": [1]}, {"enum": []},
]  # fmt: skip
"""Values of every JSON type, some of them right for one keyword or another."""

KINDS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "number": {"type": "number"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "array": {"type": "array", "items": {"type": "string", "enum": ["a"]}},
}
KEYWORDS: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "format", "enum", "enumNames", "oneOf"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "boolean": (),
    "array": ("items", "minItems", "maxItems"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_answer_to_a_form_that_was_taken_is_a_crash(kind: str) -> None:
    taken = []
    for keyword in ("type", "title", "description", "default", *KEYWORDS[kind]):
        for value in JSON_VALUES:
            schema = form({**KINDS[kind], keyword: value})
            try:
                check_schema("S", schema)
            except TypeError as problem:
                assert str(problem).startswith("S.field: ")
                continue
            taken.append(keyword)
            for answer in JSON_VALUES:
                assert isinstance(content_problem(schema, {"field": answer}), str | None)
    assert {*KEYWORDS[kind]} - {"format", "enumNames"} <= {*taken}


@pytest.mark.parametrize("required", JSON_VALUES, ids=ascii)
def test_what_is_required_is_a_list_of_names(required: Any) -> None:
    schema = form({"type": "string"}, required=required)
    try:
        check_schema("S", schema)
    except TypeError as problem:
        assert str(problem) == "S: required must be a list of names"
    else:
        assert isinstance(required, list) and all(isinstance(name, str) for name in required)
        assert isinstance(content_problem(schema, {}), str | None)


@pytest.mark.parametrize(
    ("kind", "keywords"),
    [
        ("string", {"minLength": "x"}),
        ("string", {"minLength": -1}),
        ("string", {"minLength": True}),
        ("string", {"maxLength": None}),
        ("string", {"maxLength": 10**400}),
        ("string", {"format": ["date"]}),
        ("string", {"enum": "abc"}),
        ("string", {"enum": None}),
        ("string", {"enum": ["a"], "enumNames": "A"}),
        ("string", {"oneOf": "abc"}),
        ("string", {"oneOf": [{"title": "A"}]}),
        ("string", {"oneOf": [{"const": "a", "title": 1}]}),
        ("integer", {"minimum": "5"}),
        ("integer", {"maximum": True}),
        ("number", {"minimum": float("nan")}),
        ("number", {"maximum": float("inf")}),
        ("number", {"maximum": 10**400}),
        ("array", {"minItems": "1"}),
        ("array", {"maxItems": 1.5}),
        ("array", {"items": {"enum": ["a", 1]}}),
        ("array", {"items": {"enum": "abc"}}),
        ("array", {"items": {"enum": ["a"], "anyOf": 5}}),
        ("array", {"items": {"anyOf": [{"title": "A"}]}}),
    ],
    ids=str,
)
def test_a_keyword_that_no_answer_could_be_checked_by_is_refused(kind: str, keywords: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"S\.field: "):
        check_schema("S", form({**KINDS[kind], **keywords}))


@pytest.mark.parametrize(
    ("kind", "keywords", "fits", "fails"),
    [
        ("string", {"minLength": 0, "maxLength": 1}, "a", "ab"),
        ("string", {"format": "date"}, "2026-07-28", "28.7."),
        ("string", {"oneOf": [OPTION]}, "a", "b"),
        ("string", {"oneOf": [{"const": "a"}]}, "a", "b"),
        ("integer", {"minimum": -1, "maximum": 1.5}, 1, 2),
        ("number", {"minimum": 0.5}, 0.5, 0.4),
        ("array", {"items": {"anyOf": [OPTION]}, "maxItems": 1}, ["a"], ["a", "a"]),
    ],
    ids=str,
)
def test_keywords_as_mcp_has_them_are_taken(kind: str, keywords: dict[str, Any], fits: Any, fails: Any) -> None:
    schema = form({**KINDS[kind], **keywords})
    check_schema("S", schema)
    assert content_problem(schema, {"field": fits}) is None
    assert content_problem(schema, {"field": fails}) is not None
