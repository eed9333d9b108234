"""Several callers of one process: what each finds of a task, what that costs, and that nothing remembered goes around
the rule."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest
import pytest_asyncio

from bridge.answering import shown_to
from bridge.envelope import Peer
from bridge.errors import BridgeError, NotAllowed, NoWorkerForCall, TaskNotFound
from bridge.exchange import Caller
from bridge.histories import Histories
from bridge.identity import Identity, Scope
from bridge.reader import Reader
from bridge.rights import Right, Rights
from bridge.status import Live, Terminal
from bridge.tasks import Tasks
from tests.gateway.conftest import DEADLINE, OWNER, TESTER, Bridge, rules
from tests.support import eventually
from workflows.kit.contract import Principal
from workflows.kit.delegates import NOBODY, Delegates

ACCEPTED: Final = {"action": "accept", "content": {"text": "yes"}}


def somebody(*groups: str, scopes: frozenset[str] | None = frozenset()) -> Identity:
    principal = Principal(issuer=OWNER.issuer, subject="somebody else")
    return Identity(principal=principal, scopes=scopes, groups=frozenset(groups))


STRANGER: Final = somebody()
AUDITOR: Final = somebody("auditors")
MANAGER: Final = somebody("managers")
OPERATOR: Final = somebody(scopes=frozenset({Scope.OPERATE}))


def caller(identity: Identity) -> Caller:
    return Caller(identity=identity, channel="test", peer=Peer(version="2026-07-28", capabilities={}))


class Office:
    """A replica whose tools delegate."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.delegates = {"tool": Delegates(read=("auditors",), answer=("managers",))}
        self.reader = bridge.reader = Reader(
            bridge.gateway, bridge.watches, rules, Rights(lambda tool: self.delegates.get(tool, NOBODY))
        )
        self.tasks = Tasks(bridge.gateway, self.reader)
        self.histories = Histories(bridge.gateway, self.reader)

    def ways(self, task_id: str, identity: Identity) -> dict[str, Callable[[], Awaitable[Any]]]:
        """Every way to a task, as the methods take it."""
        return {
            "get": lambda: self.reader.read(task_id, identity),
            "listen": lambda: self.reader.check(task_id, identity),
            "told": lambda: self.reader.look(task_id, identity),
            "cancel": lambda: self.reader.read(task_id, identity, Right.CANCEL),
            "update": lambda: self.tasks.deliver(task_id, {"a": ACCEPTED}, caller(identity)),
            "asks": lambda: self.tasks.asks(task_id, "a", identity),
            "history": lambda: self.histories.read(task_id, identity),
        }

    async def costs(self, way: Callable[[], Awaitable[Any]]) -> tuple[str, tuple[int, int, int]]:
        """What comes of it, and what was asked of Temporal."""
        gateway = self.bridge.gateway
        before = gateway.describes, gateway.queries, gateway.close_reads
        async with asyncio.timeout(DEADLINE):
            try:
                outcome = type(await way()).__name__
            except BridgeError as error:
                outcome = f"{type(error).__name__} {error.code} {error.message} {error.data}"
        after = gateway.describes, gateway.queries, gateway.close_reads
        return outcome, (after[0] - before[0], after[1] - before[1], after[2] - before[2])


@pytest_asyncio.fixture
async def office(served: Bridge) -> Office:
    return Office(served)


async def parked(office: Office) -> str:
    task = await office.bridge.start("asker", {"rounds": [["a"]]})
    await office.bridge.parked(task, "a")
    await office.bridge.settled(task)
    return task


async def ended(office: Office) -> str:
    """A task whose outcome is kept."""
    task = await office.bridge.start("ender", {"how": "return", "value": 1})
    await office.bridge.ended(task)
    return task


@pytest.mark.parametrize("state", ["parked", "ended", "watched", "deleted"])
async def test_a_stranger_s_task_costs_what_an_unknown_one_costs_and_says_the_same(office: Office, state: str) -> None:
    """AU-01: whatever is remembered of the task, by its owner's reads."""
    task = await (ended if state in ("ended", "deleted") else parked)(office)
    await office.reader.check(task, TESTER)
    if state == "deleted":
        await office.bridge.delete(task)
    unknown = {name: await office.costs(way) for name, way in office.ways("task-unknown", STRANGER).items()}
    assert set(unknown.values()) == {("TaskNotFound -32602 Task not found None", (1, 0, 0))}
    async with AsyncExitStack() as stack:
        if state == "watched":
            listener = await stack.enter_async_context(office.bridge.watches.listening(task))
            await listener.arrival(DEADLINE)
            assert office.bridge.watches.seen(task) is not None
        assert {name: await office.costs(way) for name, way in office.ways(task, STRANGER).items()} == unknown
    if state == "parked":
        assert isinstance(await office.reader.read(task, TESTER), Live), "untouched"


async def test_a_group_s_answer_is_not_taken_before_it_is_known_which_group_is_asked(bridge: Bridge) -> None:
    """The task is told of no groups but those that its questions name: it would refuse what was acknowledged."""
    async with bridge.worker():
        task = await bridge.start("asker", {"rounds": [["a"]], "publish": False})
        await bridge.parked(task, "a")
        await bridge.settled(task)
    office = Office(bridge)  # a replica that has not read the task before
    before = await bridge.gateway.describe(task)
    with pytest.raises(NoWorkerForCall):
        await office.tasks.deliver(task, {"a": ACCEPTED}, caller(MANAGER))
    assert (await bridge.gateway.describe(task)).history_length == before.history_length
    assert await office.tasks.deliver(task, {"a": ACCEPTED}, caller(TESTER)), "without a group nothing can be missing"


async def test_each_may_do_what_is_theirs_and_is_told_what_is_not(office: Office) -> None:
    task = await parked(office)
    not_allowed = f"NotAllowed -32602 {NotAllowed.message} {NotAllowed.data}"

    async def outcomes(identity: Identity) -> dict[str, str]:
        return {
            name: (await office.costs(way))[0]
            for name, way in office.ways(task, identity).items()
            if name in ("get", "listen", "cancel", "history")
        }

    read = {"get": "Live", "listen": "NoneType", "history": "tuple"}
    assert await outcomes(AUDITOR) == {**read, "cancel": not_allowed}
    assert await outcomes(MANAGER) == {**read, "cancel": not_allowed}
    assert await outcomes(OPERATOR) == {**read, "cancel": "Live"}
    for identity in (AUDITOR, OPERATOR):
        with pytest.raises(NotAllowed):
            await office.tasks.deliver(task, {"a": ACCEPTED}, caller(identity))
    assert await office.tasks.deliver(task, {"a": ACCEPTED}, caller(MANAGER))
    assert isinstance(await office.bridge.ended(task), Terminal)
    history, _ = await office.histories.read(task, AUDITOR)
    (answered,) = (entry for entry in history["entries"] if entry["event"] == "answered")
    assert answered["by"] == {"issuer": OWNER.issuer, "subject": "somebody else"}


async def test_a_question_is_shown_to_those_alone_who_may_answer_for_the_task(office: Office) -> None:
    task = await parked(office)
    for identity, asked in ((TESTER, {"a"}), (MANAGER, {"a"}), (AUDITOR, set()), (OPERATOR, set())):
        state = await office.reader.read(task, identity)
        shown = shown_to(state, caller(identity), office.reader.rights(identity, state.memo))
        assert isinstance(shown, Live)
        assert set(shown.input_requests or ()) == asked
        assert shown.status == ("input_required" if asked else "working")


async def test_a_right_that_is_taken_away_is_gone_at_the_next_request_whatever_is_remembered(office: Office) -> None:
    asking, over = await parked(office), await ended(office)
    async with office.bridge.watches.listening(asking) as listener:
        await listener.arrival(DEADLINE)

        async def remembered() -> bool:
            described = office.bridge.gateway.describes
            await office.reader.look(asking, AUDITOR)
            return office.bridge.gateway.describes == described

        await eventually(remembered, what="a state that is told from memory")
        for task in (asking, over):
            await office.reader.check(task, AUDITOR)
            await office.reader.read(task, AUDITOR)
        office.delegates.clear()
        for task in (asking, over):
            for name, way in office.ways(task, AUDITOR).items():
                with pytest.raises(TaskNotFound):
                    await way()
                    pytest.fail(name)
        office.delegates["tool"] = Delegates(read=("auditors",))
        for task in (asking, over):
            await office.reader.check(task, AUDITOR)
            await office.reader.read(task, AUDITOR)


async def test_a_cancel_names_who_asked_for_it_and_says_if_it_was_not_the_owner(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bridge.tasks")
    gateway = office.bridge.gateway
    mine, theirs = await parked(office), await parked(office)
    for task, identity, told in (
        (mine, TESTER, gateway.owner_hash(OWNER)),
        (theirs, OPERATOR, f"{gateway.owner_hash(OPERATOR.principal)} (not the task's owner)"),
    ):
        await office.tasks.stop(task, identity)
        history, _ = await office.histories.read(task, identity)
        (cancelled,) = (entry for entry in history["entries"] if entry["event"] == "cancel_requested")
        assert cancelled["by"] == told
    (record,) = (record for record in caplog.records if record.getMessage() == "task.cancelled_by_another")
    assert (vars(record)["task_id"], vars(record)["subject"]) == (theirs, "somebody else")
