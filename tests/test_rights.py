"""Who may do what with a task, by issuer and subject, groups and scopes."""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import pytest
from pydantic import ValidationError

from bridge.errors import NotAllowed, TaskNotFound
from bridge.identity import LOCAL, Identity, Scope
from bridge.rights import ALL, NONE, OPERATOR, Right, Rights, rights
from workflows.kit import Delegates
from workflows.kit.contract import Principal

READ, ANSWER, CANCEL = Right.READ, Right.ANSWER, Right.CANCEL
ANNA: Final = Principal(issuer="https://login.example", subject="anna", client="one")
DELEGATES: Final = Delegates(read=("auditors",), answer=("managers", "leads"), cancel=("on-call", "leads"))
ORDINARY: Final = frozenset({Scope.CALL, Scope.READ, Scope.ANSWER})


def ben(*groups: str, scopes: frozenset[str] | None = ORDINARY) -> Identity:
    principal = Principal(issuer=ANNA.issuer, subject="ben")
    return Identity(principal=principal, scopes=scopes, groups=frozenset(groups))


@pytest.mark.parametrize("scopes", [None, frozenset(), ORDINARY])
@pytest.mark.parametrize("client", ["one", "another", None])
def test_the_owner_may_do_everything_with_any_client_and_any_token(client: str | None, scopes: Any) -> None:
    owner = Identity(principal=ANNA.model_copy(update={"client": client}), scopes=scopes)
    assert rights(owner, ANNA, Delegates()) == ALL


@pytest.mark.parametrize(
    "stranger",
    [
        ben(),
        ben("payroll"),
        ben("anna"),
        Identity(principal=Principal(issuer="https://else.example", subject="anna"), scopes=ORDINARY),
        Identity(principal=Principal(issuer="https://login.example\0anna", subject=""), scopes=ORDINARY),
        LOCAL,
    ],
    ids=["nobody", "another-group", "group-of-her-name", "same-subject-elsewhere", "glued", "local"],
)
def test_a_stranger_may_do_nothing(stranger: Identity) -> None:
    assert rights(stranger, ANNA, DELEGATES) == NONE


@pytest.mark.parametrize(
    ("groups", "held"),
    [
        (["auditors"], {READ}),
        (["managers"], {READ, ANSWER}),
        (["on-call"], {READ, CANCEL}),
        (["leads"], {READ, ANSWER, CANCEL}),
        (["auditors", "on-call", "payroll"], {READ, CANCEL}),
    ],
)
def test_a_group_may_do_what_the_tool_delegates_to_it_and_read(groups: list[str], held: set[Right]) -> None:
    assert rights(ben(*groups), ANNA, DELEGATES) == held
    assert rights(ben(*groups), ANNA, Delegates()) == NONE, "of another tool"


def test_an_operator_reads_and_cancels_and_does_not_answer() -> None:
    operator = ben(scopes=frozenset({Scope.OPERATE}))
    assert rights(operator, ANNA, Delegates()) == OPERATOR == {READ, CANCEL}
    assert rights(ben("managers", scopes=frozenset({Scope.OPERATE})), ANNA, DELEGATES) == ALL


def test_callers_whose_credentials_are_not_told_apart_have_their_own_tasks_alone() -> None:
    """No credentials carry a scope to operate then, nor a group."""
    assert rights(LOCAL, ANNA, DELEGATES) == NONE
    assert rights(LOCAL, LOCAL.principal, Delegates()) == ALL


def test_no_right_comes_without_reading() -> None:
    some = (None, ORDINARY, frozenset({Scope.OPERATE}))
    for groups, scopes in product(([], ["auditors"], ["managers"], ["on-call"]), some):
        held = rights(ben(*groups, scopes=scopes), ANNA, DELEGATES)
        assert not held or READ in held


def test_who_may_not_read_is_told_that_there_is_no_such_task_and_who_may_is_told_what_they_may_not() -> None:
    known = {"refund": DELEGATES}
    rule = Rights(lambda tool: known.get(tool, Delegates()))
    rule.check(ben("auditors"), READ, ANNA, "refund")
    with pytest.raises(NotAllowed):
        rule.check(ben("auditors"), CANCEL, ANNA, "refund")
    with pytest.raises(TaskNotFound):
        rule.check(ben(), CANCEL, ANNA, "refund")
    del known["refund"]  # a tool that is gone delegates nothing
    with pytest.raises(TaskNotFound):
        rule.check(ben("auditors"), READ, ANNA, "refund")


@pytest.mark.parametrize(
    "wrong", [{"read": "auditors"}, {"read": [""]}, {"read": ["a\nb"]}, {"read": [1]}, {"reed": []}, {"read": None}]
)
def test_delegates_that_cannot_be_meant_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Delegates(**wrong)
