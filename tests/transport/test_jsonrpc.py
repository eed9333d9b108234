"""Messages: what is read as one, what is refused, and how it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.jsonrpc import (
    Message,
    Notification,
    Refusal,
    Request,
    Response,
    encode,
    error_response,
    parse_message,
    result_response,
)

LIMIT = 128


def parse(text: str | bytes) -> Message:
    return parse_message(text.encode() if isinstance(text, str) else text, max_depth=LIMIT)


def refusal(text: str | bytes) -> tuple[int, int, Any]:
    with pytest.raises(Refusal) as caught:
        parse(text)
    return caught.value.status, caught.value.code, caught.value.to_json().get("id", "absent")


def with_params(params: str, request_id: str = "7") -> str:
    return f'{{"jsonrpc":"2.0","id":{request_id},"method":"m","params":{params}}}'


IDS = ["1", '"1"', "0", "-1", '"007"', '" 7 "', '"1_000"', '"\u0667"', '""', "9007199254740993", '"9007199254740993"']


@pytest.mark.parametrize("literal", [*IDS, json.dumps("x" * 4096), "1" * 4000])
def test_an_id_comes_back_with_its_type_and_characters(literal: str) -> None:
    message = parse(with_params("{}", literal))
    assert isinstance(message, Request)
    assert encode(result_response(message.id, {})) == b'{"jsonrpc":"2.0","id":%b,"result":{}}' % encode_id(literal)


def encode_id(literal: str) -> bytes:
    return literal.encode("ascii", "backslashreplace")


@pytest.mark.parametrize("literal", ["null", "true", "1.0", "1.5", "{}", "[1]"])
def test_an_id_that_is_neither_string_nor_integer_is_refused_and_not_echoed(literal: str) -> None:
    assert refusal(with_params("{}", literal)) == (400, -32600, "absent")


@pytest.mark.parametrize("text", ["", "{", "nul", "'x'", '{"a":1,}', "{} {}", "\x00"])
def test_what_is_not_json_is_a_parse_error(text: str) -> None:
    assert refusal(text) == (400, -32700, "absent")


@pytest.mark.parametrize("text", ["null", '"x"', "42", "true"])
def test_json_that_is_no_object_is_an_invalid_request(text: str) -> None:
    assert refusal(text) == (400, -32600, "absent")


@pytest.mark.parametrize("text", ["[]", "[{}]", "  \n[" + with_params("{}") + "]", '[{"jsonrpc":"2.0","method":"n"}]'])
def test_batches_are_refused(text: str) -> None:
    assert refusal(text) == (400, -32600, "absent")


@pytest.mark.parametrize(
    ("member", "result"),
    [
        ('"result":{"a":1}', {"a": 1}),
        ('"error":{"code":1,"message":"m"}', None),
        ('"result":[]', None),
        ('"result":{},"error":{}', None),
    ],
)
def test_responses_carry_their_id_and_their_result(member: str, result: dict[str, int] | None) -> None:
    assert parse(f'{{"jsonrpc":"2.0","id":7,{member}}}') == Response(7, result)


@pytest.mark.parametrize("members", ['"result":{}', '"id":null,"result":{}'])
def test_malformed_responses_are_refused_without_an_id(members: str) -> None:
    assert refusal(f'{{"jsonrpc":"2.0",{members}}}') == (400, -32600, "absent")


@pytest.mark.parametrize("raw", [b"\xff\xfe", b'{"a":"\xe9"}', "{}".encode("utf-16"), b'"\xed\xa0\x80"'])
def test_what_is_not_utf_8_is_a_parse_error(raw: bytes) -> None:
    assert refusal(raw) == (400, -32700, "absent")


def test_a_byte_order_mark_is_tolerated() -> None:
    assert isinstance(parse(b"\xef\xbb\xbf" + with_params("{}").encode()), Request)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" * 5000])
def test_numbers_that_json_or_a_double_cannot_hold_are_parse_errors(number: str) -> None:
    assert refusal(with_params(f'{{"x":{number}}}')) == (400, -32700, "absent")


def test_an_id_of_5000_digits_is_a_parse_error() -> None:
    assert refusal(with_params("{}", "1" * 5000)) == (400, -32700, "absent")


def nested(depth: int, opening: str = '{"a":', closing: str = "}") -> str:
    """A message that nests `depth` deep in all."""
    return with_params('{"a":' + opening * (depth - 2) + "1" + closing * (depth - 2) + "}")


def test_a_message_may_nest_as_deep_as_the_limit() -> None:
    assert isinstance(parse(nested(LIMIT)), Request)
    assert isinstance(parse(nested(LIMIT, "[", "]")), Request)


@pytest.mark.parametrize("depth", [LIMIT + 1, 250, 500])
@pytest.mark.parametrize("brackets", [('{"a":', "}"), ("[", "]")])
def test_a_message_that_nests_deeper_is_refused_with_its_id_and_the_limit(
    depth: int, brackets: tuple[str, str]
) -> None:
    assert refusal(nested(depth, *brackets)) == (400, -32600, 7)
    with pytest.raises(Refusal, match=str(LIMIT)):
        parse(nested(depth))


@pytest.mark.parametrize("depth", [20_000, 100_000])
def test_a_message_too_deep_to_parse_is_refused(depth: int) -> None:
    status, code, _ = refusal(nested(depth))
    assert (status, code) in {(400, -32700), (400, -32600)}


def test_many_brackets_that_do_not_nest_are_fine() -> None:
    params = json.dumps({"x": [{}] * 500, "s": "[" * 500})
    assert isinstance(parse(with_params(params)), Request)


@pytest.mark.parametrize("escape", ["\\ud800", "\\uDFFF", "x\\udead\\udead"])
def test_lone_surrogates_are_refused_with_the_id(escape: str) -> None:
    assert refusal(with_params(f'{{"x":"{escape}"}}')) == (400, -32600, 7)
    assert refusal(with_params(f'{{"{escape}":1}}')) == (400, -32600, 7)


def test_a_lone_surrogate_in_the_id_is_not_echoed() -> None:
    assert refusal(with_params("{}", '"\\ud800"')) == (400, -32600, "absent")


@pytest.mark.parametrize("escape", ["\\ud83d\\ude00", "\\\\ud800"])
def test_surrogate_pairs_and_escaped_backslashes_are_text(escape: str) -> None:
    assert isinstance(parse(with_params(f'{{"x":"{escape}"}}')), Request)


@pytest.mark.parametrize("params", ['"s"', "[]", "null", "5"])
def test_params_that_are_no_object_are_invalid_params_with_the_id(params: str) -> None:
    assert refusal(with_params(params)) == (400, -32602, 7)


def test_missing_params_are_none() -> None:
    assert parse('{"jsonrpc":"2.0","id":7,"method":"m"}') == Request(7, "m", {})


@pytest.mark.parametrize("version", ['"jsonrpc":"1.0",', '"jsonrpc":2.0,', '"jsonrpc":null,', ""])
def test_another_jsonrpc_version_is_an_invalid_request_with_the_id(version: str) -> None:
    assert refusal(f'{{{version}"id":"x","method":"m","params":{{}}}}') == (400, -32600, "x")


@pytest.mark.parametrize("method", ['"method":null,', '"method":5,', ""])
def test_a_method_that_is_no_string_is_an_invalid_request_with_the_id(method: str) -> None:
    assert refusal(f'{{"jsonrpc":"2.0",{method}"id":7,"params":{{}}}}') == (400, -32600, 7)


def test_a_message_without_an_id_is_a_notification() -> None:
    assert parse('{"jsonrpc":"2.0","method":"n"}') == Notification("n", {})
    assert parse('{"jsonrpc":"2.0","method":"n","params":{}}') == Notification("n", {})


@pytest.mark.parametrize("params", ["[]", "null", '"s"'])
def test_a_notification_whose_params_are_no_object_is_refused(params: str) -> None:
    assert refusal(f'{{"jsonrpc":"2.0","method":"n","params":{params}}}') == (400, -32600, "absent")


def test_output_is_one_line_of_ascii_whatever_the_text() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\r\nh\x00i\ufeffj\U0001f468\u200d\U0001f469 \u00e9 e\u0301 \u200f"
    encoded = encode(result_response(1, {text: text}))
    assert len(encoded.decode("ascii").splitlines()) == 1
    assert json.loads(encoded)["result"] == {text: text}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_lacks_cannot_be_written(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode(result_response(1, {"x": number}))


def test_an_error_omits_what_it_does_not_have() -> None:
    assert error_response(None, -32700, "m") == {"jsonrpc": "2.0", "error": {"code": -32700, "message": "m"}}
    assert error_response(0, -1, "m", [])["error"]["data"] == []
    assert error_response("", -1, "m")["id"] == ""
