"""Who may do what with a task: one pure rule, which the reader applies to every request that names one.

The owner (issuer and subject, whatever client or token) may do everything. A group to which the task's tool delegates
something may do that, and read. An operator (scope `tasks:operate`) may read and cancel, and never answers for others.
What a tool delegates is looked up at each request: what is taken away is gone at the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from bridge.errors import NotAllowed, TaskNotFound
from bridge.identity import Identity, Scope
from workflows.kit.contract import Principal
from workflows.kit.delegates import NOBODY, Delegates


class Right(StrEnum):
    """What one may do with a task."""

    READ = "read"
    ANSWER = "answer"
    CANCEL = "cancel"


ALL: Final = frozenset(Right)
NONE: Final = frozenset[Right]()
OPERATOR: Final = frozenset({Right.READ, Right.CANCEL})

DelegatesOf = Callable[[str], Delegates]
"""What the tool of a name delegates; one that is gone delegates nothing."""


def rights(identity: Identity, owner: Principal, delegates: Delegates) -> frozenset[Right]:
    """What `identity` may do with a task of `owner`'s whose tool has these `delegates`. No right comes without READ."""
    if identity.principal.identity == owner.identity:
        return ALL
    groups = {Right.READ: delegates.read, Right.ANSWER: delegates.answer, Right.CANCEL: delegates.cancel}
    held = frozenset(right for right, names in groups.items() if not identity.groups.isdisjoint(names))
    if identity.has(Scope.OPERATE):
        held |= OPERATOR
    return held | {Right.READ} if held else NONE


class Rights:
    """The rule, with what the tools of this deployment delegate now."""

    def __init__(self, delegates: DelegatesOf = lambda _tool: NOBODY) -> None:
        self._delegates = delegates

    def of(self, identity: Identity, owner: Principal, tool: str) -> frozenset[Right]:
        """What `identity` may do with a task of `owner`'s and of `tool`."""
        return rights(identity, owner, self._delegates(tool))

    def check(self, identity: Identity, right: Right, owner: Principal, tool: str) -> None:
        """Raise TaskNotFound unless `identity` may read such a task, and NotAllowed unless it has `right` as well."""
        held = self.of(identity, owner, tool)
        if Right.READ not in held:
            raise TaskNotFound
        if right not in held:
            raise NotAllowed
