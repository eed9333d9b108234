"""Which scopes a message needs."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.features import MODULE_METHODS
from bridge.identity import LOCAL, Identity, Scope
from bridge.jsonrpc import Notification, Request, Response
from bridge.scopes import METHOD_SCOPES, InsufficientScope, check_scopes, needed_scopes
from tests.support import ROOT
from workflows.kit.contract import Principal

CALL, READ, ANSWER, OPERATE = Scope.CALL, Scope.READ, Scope.ANSWER, Scope.OPERATE


def tool_scopes(name: str) -> tuple[str, ...]:
    return {"deploy": ("deploy:production", "tasks:call")}.get(name, ())


def request(method: str, **params: Any) -> Request:
    return Request(1, method, params)


def identity(*scopes: str) -> Identity:
    return Identity(principal=Principal(issuer="i", subject="s"), scopes=frozenset(scopes))


@pytest.mark.parametrize(
    ("message", "needed"),
    [
        (request("tools/call", name="echo"), [CALL]),
        (request("tools/call", name="deploy"), [CALL, "deploy:production"]),
        (request("tools/call", name="deploy", inputResponses={"a": {}}), [CALL, "deploy:production", ANSWER]),
        (request("tools/call", name=5), [CALL]),
        (request("tools/list"), [READ]),
        (request("tasks/get", taskId="t"), [READ]),
        (request("tasks/update", taskId="t"), [ANSWER]),
        (request("tasks/cancel", taskId="t"), [CALL]),
        (request("subscriptions/listen"), [READ]),
        (request("prompts/get", name="p"), [READ]),
        (request("server/discover"), []),
        (request("ping"), []),
        (request("no/such"), []),
        (Notification("notifications/cancelled", {"requestId": 1}), [CALL]),
        (Notification("notifications/initialized", {}), []),
        (Response(1, {}), [ANSWER]),
    ],
)
def test_each_message_needs_what_it_does(message: Any, needed: list[str]) -> None:
    assert needed_scopes(message, tool_scopes) == needed
    check_scopes(message, identity(*needed), tool_scopes)
    for lacking in needed:
        with pytest.raises(InsufficientScope) as refused:
            check_scopes(message, identity(*set(needed) - {lacking}), tool_scopes)
        assert (refused.value.status, refused.value.scopes) == (403, needed), "all of them, also those granted"


def test_every_method_that_a_module_may_serve_needs_a_scope() -> None:
    assert MODULE_METHODS.keys() <= METHOD_SCOPES.keys()


def test_every_method_that_the_bridge_serves_is_decided_about() -> None:
    """A method that is added without a thought would be open to every token."""
    text = (ROOT / "bridge" / "server.py").read_text("utf-8")
    served = {line.split('serve("')[1].split('"')[0] for line in text.splitlines() if 'serve("' in line}
    assert served and served - METHOD_SCOPES.keys() == {"server/discover"}


def test_callers_who_are_not_told_apart_may_do_everything_of_their_own() -> None:
    for method in METHOD_SCOPES:
        check_scopes(request(method, name="deploy", inputResponses={"a": {}}), LOCAL, tool_scopes)
    assert not LOCAL.has(OPERATE)


def test_an_operator_reads_and_cancels_without_calling_or_answering() -> None:
    operator = identity(OPERATE)
    for method in ("tasks/get", "tasks/cancel", "subscriptions/listen", "resources/read"):
        check_scopes(request(method, taskId="t"), operator, tool_scopes)
    for method in ("tools/call", "tasks/update"):
        with pytest.raises(InsufficientScope):
            check_scopes(request(method, taskId="t", name="echo"), operator, tool_scopes)
