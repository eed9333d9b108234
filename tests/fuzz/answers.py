"""Forms of every kind, and answers to them that are right, nearly right and wrong."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from tests.fuzz.values import changed, odd, texts, values

_words: Final = st.sampled_from(("a", "b", "Über", "x y", "", "1"))
_options: Final = st.lists(_words, min_size=1, max_size=3, unique=True)
_lengths: Final = st.integers(0, 3)
_bounds: Final = st.one_of(st.integers(-5, 5), st.sampled_from((-1e308, 2**53 + 1, 0.5)))

FORMATS: Final = {
    "email": "a@b.example",
    "uri": "https://a.example/",
    "date": "2026-02-28",
    "date-time": "2026-02-28T10:00:00Z",
}


@st.composite
def _strings(draw: st.DrawFn) -> dict[str, Any]:
    prop: dict[str, Any] = {"type": "string"}
    match draw(st.sampled_from(("plain", "length", "format", "enum", "named", "titled"))):
        case "length":
            prop |= {"minLength": draw(_lengths), "maxLength": draw(_lengths)}
        case "format":
            prop["format"] = draw(st.sampled_from(sorted(FORMATS)))
        case "enum":
            prop["enum"] = draw(_options)
        case "named":
            options = draw(_options)
            prop |= {"enum": options, "enumNames": [f"The {option}" for option in options]}
        case "titled":
            prop["oneOf"] = [{"const": option, "title": f"The {option}"} for option in draw(_options)]
        case _:
            pass
    return prop


@st.composite
def _numbers(draw: st.DrawFn) -> dict[str, Any]:
    prop: dict[str, Any] = {"type": draw(st.sampled_from(("integer", "number")))}
    for keyword in draw(st.sets(st.sampled_from(("minimum", "maximum")))):
        prop[keyword] = draw(_bounds)
    return prop


@st.composite
def _lists(draw: st.DrawFn) -> dict[str, Any]:
    options = draw(_options)
    titled = [{"const": option, "title": option} for option in options]
    items = draw(st.sampled_from(({"type": "string", "enum": options}, {"anyOf": titled})))
    prop: dict[str, Any] = {"type": "array", "items": items}
    for keyword in draw(st.sets(st.sampled_from(("minItems", "maxItems")))):
        prop[keyword] = draw(_lengths)
    return prop


@st.composite
def forms(draw: st.DrawFn) -> dict[str, Any]:
    """A schema that MCP's forms can express."""
    properties = draw(
        st.dictionaries(
            st.one_of(st.sampled_from(("name", "age", "ü", "a b")), st.text(st.characters(codec="utf-8"), max_size=5)),
            st.one_of(_strings(), _numbers(), _lists(), st.just({"type": "boolean"})),
            max_size=4,
        )
    )
    required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def right_value(prop: dict[str, Any]) -> Any:
    """A value for one property; often the right one."""
    match prop:
        case {"enum": [first, *_]} | {"oneOf": [{"const": first}, *_]}:
            return first
        case {"format": name}:
            return FORMATS[name]
        case {"type": "string"}:
            return "x" * prop.get("minLength", 0)
        case {"type": "integer" | "number"}:
            return prop.get("minimum", prop.get("maximum", 0))
        case {"type": "boolean"}:
            return True
        case _:
            items = prop["items"]
            options = items.get("enum") or [option["const"] for option in items["anyOf"]]
            return options[:1] * prop.get("minItems", 1)


_responses: Final = st.one_of(
    st.just({"action": "decline"}),
    st.just({"action": "cancel", "content": {"x": None}}),
    st.just({"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}),
    st.just({"roots": [{"uri": "file:///x"}]}),
    st.builds(lambda content: {"action": "accept", "content": content}, odd),
    odd,
)


@st.composite
def answers_to(draw: st.DrawFn, schema: dict[str, Any]) -> Any:
    """An answer: right, changed a little, or anything."""
    content = {name: right_value(prop) for name, prop in schema["properties"].items()}
    right = {"action": "accept", "content": content}
    return draw(st.one_of(st.just(right), changed(st.just(right), most=2), _responses))


@st.composite
def dialogues(draw: st.DrawFn) -> dict[str, Any]:
    """A form, what is sent for it one after the other, and the way that it takes."""
    schema = draw(forms())
    return {
        "schema": schema,
        "answers": draw(st.lists(answers_to(schema), min_size=1, max_size=4)),
        "extra": draw(st.dictionaries(texts, values, max_size=2)),
        "spoil": draw(st.one_of(st.none(), st.integers(0, 400))),
        "large": draw(st.sampled_from((0, 0, 0, 0, 100_000, 1_950_000))),
    }
