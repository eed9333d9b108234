"""JSON that clients may send: values of every kind, texts that JSON does not allow, and changes to a right message.

A message that is wrong in one place gets further than one that is wrong everywhere, so most input is a right message
with a few changes. What no generator can know, e.g. the id of a task that runs, is a word such as `$task` here, which
the run replaces.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

ODD_TEXTS: Final = (
    "",
    " ",
    "\0",
    "\r\n",
    "\u2028",
    "\ufeff",
    "\ud800",
    "\U0010ffff",
    "../../etc/passwd",
    "__proto__",
    "$ref",
    "=?base64?!?=",
    "%s%n{0}",
    "x" * 200,
    "x" * 5_000,
    "x" * 30_000,
)
ODD_NUMBERS: Final = (0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**64), 10**30, 1.5, -0.0, 1e308)


@dataclass(frozen=True)
class Raw:
    """JSON text, or what is none, that is written as it is."""

    text: str


@dataclass(frozen=True)
class Pairs:
    """An object that may name a member twice."""

    pairs: tuple[tuple[str, Any], ...]


NO_JSON: Final = tuple(
    map(
        Raw,
        (
            "NaN",
            "-Infinity",
            "1e400",
            "-1e999",
            "1" * 400,
            "9" * 5_000,
            "01",
            "'x'",
            "{a:1}",
            "[1,]",
            '"\\ud800"',
            '"\\udc00\\ud800"',
            '"\\x"',
            '"\t"',
            "[" * 127 + "]" * 127,
            "[" * 200 + "]" * 200,
            "[" * 100_000,
            '{"a":' * 150 + "1" + "}" * 150,
            "/**/1",
            "tru",
            "",
        ),
    )
)


def one_of(choices: Sequence[T]) -> st.SearchStrategy[T]:
    """One of `choices`; hypothesis would write all of them into its messages, however long."""
    return st.integers(0, len(choices) - 1).map(choices.__getitem__)


texts: Final = st.one_of(one_of(ODD_TEXTS), st.text(max_size=20))
scalars: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(ODD_NUMBERS),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
values: Final = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
odd: Final = st.one_of(values, one_of(NO_JSON))
ids: Final = st.one_of(st.integers(0, 10**6), st.sampled_from(ODD_NUMBERS), texts, st.none(), st.booleans(), values)


def written(value: Any) -> bytes:
    """The JSON text of a value that may hold `Raw` and `Pairs`."""
    return _text(value).encode("utf-8", "surrogatepass")


def _text(value: Any) -> str:
    match value:
        case Raw():
            return value.text
        case Pairs():
            return "{" + ",".join(f"{json.dumps(name)}:{_text(inner)}" for name, inner in value.pairs) + "}"
        case dict():
            return "{" + ",".join(f"{json.dumps(name)}:{_text(inner)}" for name, inner in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_text, value)) + "]"
        case _:
            return json.dumps(value)


def filled(value: Any, words: dict[str, Any]) -> Any:
    """`value` with the words in it, e.g. `$task`, replaced. `$task~3` is the same with its third character changed."""
    match value:
        case str() if value.startswith("$"):
            word, _, at = value.partition("~")
            if word not in words:
                return value
            return _spoilt(words[word], int(at)) if at else words[word]
        case dict():
            return {_name(name, words): filled(inner, words) for name, inner in value.items()}
        case list():
            return [filled(inner, words) for inner in value]
        case Pairs():
            return Pairs(tuple((_name(name, words), filled(inner, words)) for name, inner in value.pairs))
        case _:
            return value


def _name(name: str, words: dict[str, Any]) -> str:
    word = filled(name, words)
    return word if isinstance(word, str) else name


def _spoilt(text: Any, at: int) -> Any:
    if not isinstance(text, str) or not text:
        return text
    at %= len(text)
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


@st.composite
def changed(draw: st.DrawFn, rights: st.SearchStrategy[Any], most: int = 3) -> Any:
    """A right value with up to `most` changes."""
    root = [copy.deepcopy(draw(rights))]
    for _ in range(draw(st.integers(0, most))):
        holder, key = draw(st.sampled_from(_places(root)))
        value = holder[key]
        match draw(st.sampled_from(("replace", "replace", "drop", "add", "twice", "deeper", "in a list"))):
            case "drop" if isinstance(holder, dict):
                del holder[key]
            case "add" if isinstance(value, dict):
                value[draw(texts)] = draw(odd)
            case "twice" if isinstance(value, dict) and value:
                name = draw(st.sampled_from(sorted(value)))
                holder[key] = Pairs((*value.items(), (name, draw(odd))))
            case "deeper":
                for _ in range(draw(st.sampled_from((1, 60, 130)))):
                    value = {"x": value}
                holder[key] = value
            case "in a list":
                holder[key] = [value]
            case _:
                holder[key] = draw(odd)
    return root[0]


def _places(holder: Any) -> list[tuple[Any, Any]]:
    """Where something can be changed; not inside what was nested for its depth."""
    found, level = list[tuple[Any, Any]](), [holder]
    for _ in range(8):
        below = []
        for each in level:
            keys = range(len(each)) if isinstance(each, list) else list(each)
            found += [(each, key) for key in keys]
            below += [each[key] for key in keys if isinstance(each[key], dict | list)]
        level = below
    return found
