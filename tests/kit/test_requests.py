"""Which input requests can be asked, whoever wrote the workflow."""

from __future__ import annotations

from typing import Any

import pytest

from workflows.kit.questions import can_be_asked, request_problem, response_problem

PARAMS: dict[str, Any] = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
FORM = {"method": "elicitation/create", "params": PARAMS}
URL: dict[str, Any] = {"mode": "url", "message": "?", "url": "https://example.com/"}
SAMPLING: dict[str, Any] = {"messages": [], "maxTokens": 5}
JSON_VALUES: list[Any] = [
    None, True, 0, -1, 1.5, 10**400, "", "form", "url", "accept", "https://x", "\ud800", [], [1], [[]], {}, {"a": 1},
    {"mode": "url"}, PARAMS, URL, {"action": []}, {"action": {"a": 1}}, {"action": "accept"},
    {"action": "accept", "content": []}, {"action": "accept", "content": {"a": [{}]}}, {"roots": []}, {"roots": {}},
    {"role": 1, "content": [], "model": None},
]  # fmt: skip


@pytest.mark.parametrize(
    "request_",
    [
        None,
        "x",
        {},
        {"method": "elicitation/create"},
        {"method": "elicitation/create", "params": None},
        {"method": "elicitation/create", "params": {"message": "?"}},
        {"method": "elicitation/create", "params": {**PARAMS, "requestedSchema": {"type": "object"}}},
        {
            "method": "elicitation/create",
            "params": {
                "message": "?",
                "requestedSchema": {"type": "object", "properties": {"a": {"type": "array"}}},
            },
        },
        {
            "method": "elicitation/create",
            "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}, "required": 7}},
        },
        {"method": "tools/call", "params": {}},
        {"method": ["elicitation/create"], "params": PARAMS},
        {"method": {"a": 1}},
        {"method": "elicitation/create", "params": {**PARAMS, "mode": {"a": 1}}},
        {"method": "elicitation/create", "params": {**PARAMS, "mode": None}},
        {"method": "elicitation/create", "params": {**PARAMS, "mode": "other"}},
        {"method": "elicitation/create", "params": {**PARAMS, "message": 5}},
        {"method": "sampling/createMessage", "params": {**SAMPLING, "maxTokens": True}},
        {"method": "sampling/createMessage", "params": {**SAMPLING, "messages": {}}},
        {"method": "roots/list", "params": []},
    ],
)
def test_a_request_that_could_not_be_answered_is_known(request_: object) -> None:
    assert request_problem(request_) is not None


def test_a_request_that_can_be_answered_has_no_problem() -> None:
    assert request_problem(FORM) is None
    assert request_problem({"method": "roots/list"}) is None
    assert request_problem({"method": "elicitation/create", "params": {**PARAMS, "mode": "form"}}) is None
    assert request_problem({"method": "sampling/createMessage", "params": SAMPLING}) is None


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        " javascript:alert(1)",
        "java\nscript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "ftp://example.com/",
        "//example.com/",
        "example.com",
        "https:",
        "https://",
        "https:///path",
        "https://example.com/ x",
        " https://example.com/",
        "",
        None,
        5,
    ],
)
def test_a_person_is_sent_to_no_other_address_than_one_of_the_web(url: Any) -> None:
    assert request_problem({"method": "elicitation/create", "params": {**URL, "url": url}}) is not None


@pytest.mark.parametrize(
    "url", ["https://example.com", "http://127.0.0.1:8080/a?b=c#d", "HTTPS://EXAMPLE.COM/", "https://[::1]/x"]
)
def test_a_person_may_be_sent_to_an_address_of_the_web(url: str) -> None:
    assert request_problem({"method": "elicitation/create", "params": {**URL, "url": url}}) is None


def test_no_answer_to_a_request_that_can_be_asked_is_a_crash() -> None:
    requests: list[Any] = list(JSON_VALUES)
    for method in ("elicitation/create", "sampling/createMessage", "roots/list", *JSON_VALUES):
        requests += [{"method": method}, *({"method": method, "params": value} for value in JSON_VALUES)]
        for params in (PARAMS, URL, SAMPLING):
            for name in (*params, "mode", "tools", "toolChoice", "_meta"):
                requests += [{"method": method, "params": {**params, name: value}} for value in JSON_VALUES]
    asked = [request for request in requests if request_problem(request) is None]
    assert {request["method"] for request in asked} == {"elicitation/create", "sampling/createMessage", "roots/list"}
    for request in asked:
        for value in JSON_VALUES:
            assert isinstance(response_problem(request, value), str | None)
            for declared in ({}, {"elicitation": value, "sampling": value, "roots": value}):
                assert can_be_asked(declared, request) in (True, False)
