"""What a task looks like now, to whoever may know: conditional reads.

Every request that names a task comes through here, and the rule of `bridge.rights` is applied to what was found: from
memory as from Temporal, at each request anew. Who may not read a task costs a describe, as an id that does not exist.

A query tells a live task's state, but costs a workflow task, hangs without a worker, and can break a run that fell out
of its worker's cache (docs/explanation/decisions/0010-views-are-published.md); a describe does none of that. So a read
is
1. a describe, or what the history told of a watched task; a closed run gives its outcome, which never changes and is
   kept,
2. else the memo's snapshot, if no workflow task is pending: it was published with the change of state. A pending
   workflow task gets time to end first; of a run at which one always is, two must (`bridge.turnover`). A workflow that
   does not publish all its views has only its parked ones taken,
3. else the last query's view, if run and history length are those of the describe made *before* that query (never of a
   later one: a signal that arrives during a workflow task is buffered and does not move the length),
4. else a query, shared only by readers whose describe preceded it,
5. else, when no worker answers, the last known state without the questions answered since, and a note that says so.

Steps 1 to 4 are exact; an answer of step 5 is never kept. A reader holds no state that another replica lacks.

A watch may lag behind what another replica did, by the latency of its long poll. It is never used for a task of which
this replica acknowledged an update or a cancel, until a later describe shows no pending workflow task and the watch has
come that far.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from weakref import WeakKeyDictionary

from cachetools import LRUCache, TLRUCache, TTLCache

from bridge.chain import Chains
from bridge.closed import Closed
from bridge.describe import Described, utc
from bridge.errors import Busy, NotOpen, NoUsableView, NoWorker, TaskNotFound
from bridge.follow import Moment
from bridge.gateway import Gateway
from bridge.identity import Identity
from bridge.queries import SharedQueries
from bridge.query import QUERY_SECONDS, Answer
from bridge.rights import Right, Rights
from bridge.status import Live, OutcomeRules, TaskState, Terminal, live, outcome, terminal
from bridge.turnover import Turnover
from bridge.watches import Watches
from workflows.kit.contract import Principal, TaskMemo, TaskView

logger = logging.getLogger(__name__)

MiB: Final = 1024 * 1024
OUTCOME_CACHE_BYTES: Final = 64 * MiB
VIEW_CACHE_BYTES: Final = 32 * MiB
ACKNOWLEDGED_BYTES: Final = 8 * MiB
ACKNOWLEDGED_SECONDS: Final = 600.0
OWNERS: Final = 10_000
OWNER_SECONDS: Final = 10.0
"""Neither owner nor tool of a task changes, but it may be deleted. Long enough for many who begin to listen at once."""

_OBJECT_FACTOR: Final = 4
_OBJECT_BYTES: Final = 2_000
"""Parsed JSON takes a few times its text in memory, and every entry something besides."""

_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.25
_PATIENCE: Final = 0.02
"""While a workflow task is pending the task is about to change: a read looks again, until its pauses get this long,
before it asks. That saves nine of ten queries of a busy server, each a workflow task more (docs/performance.md)."""

STUCK_TASKS: Final = 10_000
"""Tasks of which is remembered since when their workflow task is pending."""

NO_WORKER: Final = "Nothing is processing this task at the moment; this is its last known state"
PAUSED: Final = "This task was paused by an operator; this is its last known state"


@dataclass(frozen=True, slots=True)
class Seen:
    """A task's state, and the run that showed it; None for an outcome that was kept."""

    state: TaskState
    run: Described | None = None


class Reader:
    """Reads tasks for those who may. One per process, for all requests."""

    def __init__(
        self,
        gateway: Gateway,
        watches: Watches,
        rules: Callable[[str], OutcomeRules] = lambda _tool: OutcomeRules(),
        rights: Rights | None = None,
    ) -> None:
        """`rules` gives what the tool of a name declares about its ends; unknown tools get the defaults. Without
        `rights` tasks are their owners' alone.
        """
        self._gateway = gateway
        self._watches = watches
        self._rules = rules
        self._rights = rights or Rights()
        self._chains = Chains(gateway)
        self._queries = SharedQueries(self._ask, self._keep)
        self._outcomes: TLRUCache[str, _Kept] = TLRUCache(
            OUTCOME_CACHE_BYTES,
            ttu=lambda _id, kept, _now: kept.until,
            timer=time.time,
            getsizeof=lambda kept: kept.size,
        )
        self._told: WeakKeyDictionary[Described, Live] = WeakKeyDictionary()
        """What was made of a run at rest and its snapshot, for as long as somebody has the run; most reads find it
        unchanged. Views that a query told are kept in `_views` alone, which bounds what they take.
        """
        self._views: LRUCache[str, _Labelled] = LRUCache(VIEW_CACHE_BYTES, getsizeof=lambda labelled: labelled.size)
        self._owners: TTLCache[str, tuple[Principal, str]] = TTLCache(OWNERS, OWNER_SECONDS)
        """Owner and tool."""
        self._acknowledged: TTLCache[str, _Acknowledged] = TTLCache(
            ACKNOWLEDGED_BYTES, ttl=ACKNOWLEDGED_SECONDS, getsizeof=lambda entry: entry.size
        )
        self._pending: LRUCache[str, tuple[str, int, float]] = LRUCache(STUCK_TASKS)
        """Run and history length with which a workflow task was pending, and the event loop's time of the first look.
        """

    async def read(
        self, task_id: str, identity: Identity, right: Right = Right.READ, *, exact: bool = False
    ) -> TaskState:
        """The task's state, at least as new as this call; or as the watch of it, unless it must be `exact` because
        something is decided by it. `right` is what `identity` is about to do.

        Raises:
            TaskNotFound: No such task, deleted by retention, not a task, or not for `identity` to know of.
            NotAllowed: It may be read, and not what `right` says.
            EngineUnavailable, EngineRefused: Temporal could not be asked.
        """
        return (await self.look(task_id, identity, right, exact=exact)).state

    async def check(self, task_id: str, identity: Identity) -> None:
        """Raises what `read` raises, without finding out more than that the task is, or has just been, there."""
        if (known := self._owners.get(task_id)) is not None:
            await self._allowed(task_id, *known, identity, Right.READ)
            return
        if (moment := self._watched(task_id)) is not None and (memo := moment.run.memo) is not None:
            await self._allowed(task_id, memo.owner, memo.tool, identity, Right.READ)
        else:
            memo = self._authorised((await self._described(task_id)).run.memo, identity, Right.READ)
        self._owners[task_id] = memo.owner, memo.tool

    def rights(self, identity: Identity, memo: TaskMemo) -> frozenset[Right]:
        """What `identity` may do now with the task that has this memo."""
        return self._rights.of(identity, memo.owner, memo.tool)

    async def look(self, task_id: str, identity: Identity, right: Right = Right.READ, *, exact: bool = False) -> Seen:
        """See `read`; also says which run showed it."""
        if (kept := self._outcomes.get(task_id)) is not None:
            await self._allowed(task_id, kept.state.memo.owner, kept.state.memo.tool, identity, right)
            return Seen(kept.state)
        moment = None if exact else self._watched(task_id)
        if moment is not None and moment.run.memo is not None:
            await self._allowed(task_id, moment.run.memo.owner, moment.run.memo.tool, identity, right)
            if (told := self._told.get(moment.run)) is not None:
                self._watches.read(moment.run)
                return Seen(told, moment.run)
        clock = asyncio.get_running_loop().time
        deadline = clock() + QUERY_SECONDS + 0.2
        pause, counted, turnover = _FIRST_PAUSE, False, Turnover()
        while True:
            patient, watched = pause < _PATIENCE, moment is not None
            moment = moment or await self._described(task_id)
            self._authorised(moment.run.memo, identity, right)  # before anything that an unknown id would not cost
            run = await self._chains.deciding(moment.run)
            memo = self._authorised(run.memo, identity, right)
            if (told := self._told.get(run)) is not None:
                self._watches.read(run)
                return Seen(told, run)
            if run.closed_at is not None:
                if (ended := await self._ended(run, memo, moment.ended if run is moment.run else None)) is not None:
                    return Seen(ended, run)
            else:
                if not counted:
                    self._watches.read(run)
                    counted = True
                if not watched:
                    turnover.saw(run)
                try:
                    view = await self._view(run, deadline, turnover, patient=patient)
                except NoUsableView:
                    return Seen(live(task_id, memo, run.snapshot, heartbeat=run.heartbeat), run)
                except NoWorker:
                    return await self._last_known(task_id, identity, right)
                except (Busy, NotOpen):
                    pass  # something moved; look again
                else:
                    state = live(task_id, memo, view, heartbeat=run.heartbeat, taken_up=view is not None)
                    if view is run.snapshot and not run.pending_task:
                        self._told[run] = state
                    return Seen(state, run)
            if clock() + pause >= deadline:
                return await self._last_known(task_id, identity, right)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            moment = self._watched(task_id) if pause < _PATIENCE and not exact else None

    def _watched(self, task_id: str) -> Moment | None:
        """The task's latest run from memory, if a watch tells it as a describe would."""
        seen = self._watches.seen(task_id)
        known = seen is not None and (seen.ended is not None or task_id not in self._acknowledged)
        return seen if known else None

    async def _described(self, task_id: str) -> Moment:
        asked_at = asyncio.get_running_loop().time()
        run = await self._gateway.describe(task_id)
        self._watches.described(run)
        self._forget_acknowledged(run, asked_at)
        return Moment(run)

    def acknowledged(self, task_id: str, keys: Iterable[str] = ()) -> None:
        """Note that answers to `keys`, or a cancel, were delivered: until they are worked in a watch may not know of
        them, and step 5 must not ask again what is already answered.
        """
        before = self._acknowledged.get(task_id)
        entry = _Acknowledged(
            (before.keys if before else frozenset()) | frozenset(keys), asyncio.get_running_loop().time()
        )
        if entry.size <= ACKNOWLEDGED_BYTES:
            self._acknowledged[task_id] = entry

    async def close(self) -> None:
        """End the queries that are on their way."""
        await self._queries.close()

    async def _view(self, run: Described, deadline: float, turnover: Turnover, *, patient: bool) -> TaskView | None:
        """Steps 2 to 4; None if the workflow has not begun."""
        published = run.snapshot is not None and bool(run.snapshot.published)
        if run.paused:
            raise NoWorker  # a query would be rejected at once
        if run.first_task_unfinished:
            if run.first_of_chain:
                return None
            if run.snapshot is not None and (run.snapshot.status == "working" or (published and not run.pending_task)):
                return run.snapshot  # the run before published it as its last state, and no answer came since
        parked = run.snapshot is not None and run.snapshot.status == "input_required"
        if (run.settled and (published or parked)) or (published and await self._worked_in(run, turnover)):
            self._views.pop(run.task_id, None)  # of a state before this one; it must not come back as the last known
            return run.snapshot
        labelled = self._views.get(run.task_id)
        if labelled is not None and labelled.label == (run.run_id, run.history_length):
            return labelled.view
        if run.pending_task and published and not patient:
            self._wait_for_worker(run)
        if run.pending_task and (patient or published):
            raise Busy
        try:
            async with asyncio.timeout_at(deadline):
                return (await self._queries.view(run)).view
        except TimeoutError as error:
            raise NoWorker from error

    async def _worked_in(self, run: Described, turnover: Turnover) -> bool:
        """Whether all that had happened when the read began is worked in, although a workflow task is pending."""
        if not (run.pending_task and turnover.two_ended):
            return False
        return await self._gateway.worked_in(run.task_id, run.run_id, turnover.since, run.history_length)

    def _wait_for_worker(self, run: Described) -> None:
        """Raises NoWorker: This workflow task has been waited for before, and for as long as a read may take. Nobody
        works on it, so who comes later is not kept waiting.
        """
        now = asyncio.get_running_loop().time()
        run_id, length, since = self._pending.get(run.task_id, ("", 0, now))
        if (run_id, length) != (run.run_id, run.history_length):
            self._pending[run.task_id] = run.run_id, run.history_length, now
        elif now - since > QUERY_SECONDS - _LONGEST_PAUSE:
            raise NoWorker

    async def _ask(self, run: Described) -> Answer:
        return await self._gateway.query_view(run.task_id, run.run_id)

    def _keep(self, run: Described, answer: Answer) -> None:
        labelled = _Labelled((run.run_id, run.history_length), answer)
        if labelled.size <= VIEW_CACHE_BYTES:
            self._views[run.task_id] = labelled
        else:
            self._views.pop(run.task_id, None)

    async def _last_known(self, task_id: str, identity: Identity, right: Right) -> Seen:
        """Step 5, on a describe of its own: what the reader saw may be seconds old, and the task closed meanwhile."""
        # A describe that was sent later may have come earlier, and have them forgotten, while ours still asks them
        answered = self._answered(task_id)
        run = await self._chains.deciding((await self._described(task_id)).run)
        memo = self._authorised(run.memo, identity, right)
        if run.closed_at is not None and (ended := await self._ended(run, memo)) is not None:
            return Seen(ended, run)
        if run.closed_at is None and run.settled and run.snapshot is not None and run.snapshot.published:
            return Seen(live(task_id, memo, run.snapshot, heartbeat=run.heartbeat), run)
        labelled = self._views.get(task_id)
        known = [view for view in (run.snapshot, labelled.view if labelled else None) if view is not None]
        state = live(
            task_id,
            memo,
            max(known, key=lambda view: utc(view.changed_at), default=None),
            heartbeat=run.heartbeat,
            note=PAUSED if run.paused else NO_WORKER,
            without=answered | self._answered(task_id),
            questions_known=bool(known),
        )
        return Seen(state, run)

    def _authorised(self, memo: TaskMemo | None, identity: Identity, right: Right) -> TaskMemo:
        """The memo of a task with which `identity` may do that. Raises TaskNotFound, NotAllowed."""
        if memo is None:
            raise TaskNotFound
        self._rights.check(identity, right, memo.owner, memo.tool)
        return memo

    async def _allowed(self, task_id: str, owner: Principal, tool: str, identity: Identity, right: Right) -> None:
        """The same of a task that is known from memory: who may not know of it does not get the answer any sooner than
        for an id that does not exist, nor in an outage.
        """
        try:
            self._rights.check(identity, right, owner, tool)
        except TaskNotFound:
            await self._gateway.describe(task_id)
            raise

    async def _ended(self, run: Described, memo: TaskMemo, closed: Closed | None = None) -> Terminal | None:
        """The outcome of a closed run, kept until Temporal deletes the run; None if the task goes on in another run.
        `closed` is its end, if that is known.
        """
        if run.continued:
            return None
        closed = closed or await self._gateway.close_event(run.task_id, run.run_id)
        if closed is None or closed.next_run_id or closed.by_reset:
            return None
        retention = await self._gateway.retention()
        state = self._outcome(run, memo, closed, retention)
        self._views.pop(run.task_id, None)
        self._acknowledged.pop(run.task_id, None)
        kept = _Kept(state, (closed.at + retention).timestamp(), closed.size)
        if kept.size <= OUTCOME_CACHE_BYTES:
            self._outcomes[run.task_id] = kept
        return state

    def _outcome(self, run: Described, memo: TaskMemo, closed: Closed, retention: timedelta) -> Terminal:
        end = outcome(
            closed,
            task_id=run.task_id,
            run_id=run.run_id,
            cancel_requested=run.cancel_requested,
            rules=self._rules(memo.tool),
        )
        if end.reference is not None:
            logger.error(
                "task.bug",
                extra={
                    "reference": end.reference,
                    "task_id": run.task_id,
                    "run_id": run.run_id,
                    "tool": memo.tool,
                    "failure": closed.failure.summary() if closed.failure else [],
                },
            )
        return terminal(run.task_id, memo, closed, end, retention)

    def _answered(self, task_id: str) -> frozenset[str]:
        """The keys of answers that may not be worked in yet."""
        entry = self._acknowledged.get(task_id)
        return entry.keys if entry else frozenset()

    def _forget_acknowledged(self, run: Described, asked_at: float) -> None:
        """A describe that was sent after the acknowledgement and shows nothing pending has the answers worked in."""
        answered = self._acknowledged.get(run.task_id)
        if answered is not None and run.settled and asked_at > answered.at:
            del self._acknowledged[run.task_id]
            kept = self._views.get(run.task_id)
            if kept is not None and kept.label != (run.run_id, run.history_length):
                del self._views[run.task_id]  # it may ask what is answered now


class _Kept:
    """An outcome, until when it may be given, and what it takes."""

    def __init__(self, state: Terminal, until: float, event_bytes: int) -> None:
        self.state = state
        self.until = until
        self.size = event_bytes * _OBJECT_FACTOR + _OBJECT_BYTES


class _Labelled:
    """A view, and run and history length of the describe before its query."""

    def __init__(self, label: tuple[str, int], answer: Answer) -> None:
        self.label = label
        self.view = answer.view
        self.size = answer.size * _OBJECT_FACTOR + _OBJECT_BYTES


class _Acknowledged:
    """Answered questions, and the event loop's time of the last answer."""

    def __init__(self, keys: frozenset[str], at: float) -> None:
        self.keys = keys
        self.at = at
        self.size = sum(len(key) for key in keys) * _OBJECT_FACTOR + _OBJECT_BYTES
