"""Who may answer a question, beyond whoever may answer for the task: separation of duties.

One pure rule for both sides: the bridge tells a caller at once that an answer is not theirs to give, and the workflow
applies the rule again to every signal. It fails closed: without an actor, without a known owner, or under a rule that
this version does not know, nobody may answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from pydantic import field_validator

from .contract import Actor, Answerer, Principal, Wire

MAX_GROUP_CHARS: Final = 256

NOT_OWNER: Final = Answerer(who="not_owner")
"""Anybody but the task's owner, by issuer and subject, whatever client acts."""


def group(name: str) -> Answerer:
    """A member of the group `name`, as the caller's credentials name it; the owner too, if they are a member.

    Raises ValueError: It cannot be the name of a group.
    """
    if not (0 < len(name) <= MAX_GROUP_CHARS and name.isprintable()):
        raise ValueError(f"a group's name must have 1 to {MAX_GROUP_CHARS} printable characters")
    return Answerer(who="group", group=name)


def may_answer(answerer: Answerer | None, owner: Principal | None, actor: Actor | None) -> bool:
    """Whether `actor` may answer a question of `owner`'s task that says `answerer`; None says nothing."""
    if answerer is None:
        return True
    if actor is None:
        return False
    if answerer.who == "not_owner":
        return owner is not None and actor.identity != owner.identity
    return answerer.who == "group" and answerer.group is not None and answerer.group in (actor.groups or ())


def in_words(answerer: Answerer) -> str:
    """Who may answer, for people: "somebody other than the task's owner", "a member of the group …"."""
    if answerer.who == "not_owner":
        return "somebody other than the task's owner"
    if answerer.who == "group" and answerer.group is not None:
        return f"a member of the group {answerer.group}"
    return "somebody whom this server does not know"


def groups_named(answerers: Iterable[Answerer]) -> frozenset[str]:
    """The groups that these rules name: all that a workflow needs to know of an actor's groups."""
    return frozenset(answerer.group for answerer in answerers if answerer.who == "group" and answerer.group is not None)


class Answer(Wire):
    """Who answered a question, and when the bridge took the answer (the workflow's time if it does not say).

    `by` is None only if the signal named nobody, which no bridge does.
    """

    key: str
    by: Actor | None = None
    at: datetime

    @field_validator("at")
    @classmethod
    def _with_offset(cls, at: datetime) -> datetime:
        return at if at.tzinfo else at.replace(tzinfo=UTC)  # contract: without an offset it is UTC
