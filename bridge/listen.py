"""subscriptions/listen: with `taskIds` what tasks/get would say, each time that it changes (Tasks extension,
"Notifications"); and which lists and resources changed (SEP-2575).

The acknowledgement comes first, and names what is honoured: of tasks, those that this caller may read. Each is told as
it is now, and then with every published change, to its end. A question that this client did not declare that it can be
asked is not shown. Progress of activities is told at most once a second.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import event_to_notification
from mcp_types import INVALID_PARAMS

from bridge.announce import Announcements, Announcer
from bridge.answering import shown_to
from bridge.capabilities import askable, require_tasks
from bridge.errors import TaskNotFound
from bridge.exchange import Exchange
from bridge.follow import Moment
from bridge.places import StreamPlaces
from bridge.reader import Reader, Seen
from bridge.rights import Right
from bridge.status import Live, TaskState, Terminal, live
from bridge.tasks import Context, TaskParams, exchange_of
from bridge.waits import REREAD_SECONDS, through_outages
from bridge.watch import Listener
from bridge.watches import Watches
from bridge.wire import detailed_task

SUBSCRIPTION_META: Final = "io.modelcontextprotocol/subscriptionId"

MAX_TASKS: Final = 1000
"""Tasks of one subscription."""

MAX_READS: Final = 64
"""Tasks that are read at a time for one subscription."""

FIRST_LOOK_SECONDS: Final = 1.0
"""How long a task may take to be followed before it is read without; a followed one is read from memory."""


class Subscriptions:
    """The handler of subscriptions/listen."""

    def __init__(self, reader: Reader, watches: Watches, announcer: Announcer, places: StreamPlaces) -> None:
        self._reader = reader
        self._watches = watches
        self._announcer = announcer
        self._places = places

    async def listen(self, context: Context, _params: TaskParams) -> dict[str, Any]:
        """subscriptions/listen: ends when the client leaves, or with a result when this process is about to end.

        Raises:
            MCPError: -32602, the filter cannot be used; -32021, tasks without the Tasks extension.
            TooMany: Streams, or tasks on them, are open already.
            EngineUnavailable, EngineRefused
        """
        exchange = exchange_of(context)
        params = context.params or {}
        wanted = _task_ids(params)
        honoured = self._announcer.honoured(params["notifications"])
        if wanted:
            require_tasks(exchange.peer.capabilities)
        subscription = _Subscription(self._reader, exchange, self._watches.slots)
        async with AsyncExitStack() as stack:
            stack.enter_context(self._places.opened(exchange.owner, len(wanted)))
            accepted = await subscription.readable(wanted)
            listeners = {
                task_id: await stack.enter_async_context(self._watches.listening(task_id)) for task_id in accepted
            }
            announcements = stack.enter_context(self._announcer.listening(honoured))
            await subscription.acknowledge(({"taskIds": accepted} if accepted else {}) | honoured)
            telling = [subscription.tell(*item) for item in listeners.items()]
            await _until(exchange.stopping, [subscription.pass_on(announcements), *telling])
        return {"resultType": "complete", "_meta": subscription.meta}


class _Subscription:
    """One open stream."""

    def __init__(self, reader: Reader, exchange: Exchange, slots: asyncio.Semaphore) -> None:
        self.meta: Final = {SUBSCRIPTION_META: exchange.request_id}
        self._reader = reader
        self._exchange = exchange
        self._slots = slots
        self._reading = asyncio.Semaphore(MAX_READS)
        self._writing = asyncio.Lock()  # one message at a time: a client that does not read costs one, not one per task

    async def readable(self, task_ids: Sequence[str]) -> list[str]:
        """Those that this caller may read. Raises EngineUnavailable, EngineRefused."""
        try:
            async with asyncio.TaskGroup() as group:
                checks = {task_id: group.create_task(self._is_readable(task_id)) for task_id in task_ids}
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        return [task_id for task_id, check in checks.items() if check.result()]

    async def _is_readable(self, task_id: str) -> bool:
        try:
            async with self._slots:
                await self._reader.check(task_id, self._exchange.caller.identity)
        except TaskNotFound:
            return False
        return True

    async def acknowledge(self, honoured: Mapping[str, Any]) -> None:
        """Say what will be told."""
        params = {"_meta": self.meta, "notifications": dict(honoured)}
        await self._exchange.notify("notifications/subscriptions/acknowledged", params)

    async def pass_on(self, announcements: Announcements) -> None:
        """Send each announcement, for ever."""
        while True:
            event = await announcements.next()
            message = event_to_notification(event, self.meta).model_dump(mode="json", by_alias=True, exclude_none=True)
            async with self._writing:
                await self._exchange.notify(message["method"], message["params"])

    async def tell(self, task_id: str, listener: Listener) -> None:
        """Send the task as it is, each time that it differs from what was sent before, to its end, or for as long as
        this caller may read it.
        """
        caller = self._exchange.caller
        told: dict[str, Any] | None = None
        async with aclosing(self._states(task_id, listener)) as states:
            async for seen in states:
                rights = self._reader.rights(caller.identity, seen.memo)
                if Right.READ not in rights:
                    return
                state = shown_to(seen, caller, rights)
                requests = state.input_requests if isinstance(state, Live) else None
                if not askable(requests or {}, self._exchange.peer.capabilities):
                    continue
                if (task := detailed_task(state)) != told:
                    told = task
                    async with self._writing:
                        await self._exchange.notify("notifications/tasks", {**task, "_meta": self.meta})
                if isinstance(state, Terminal):
                    return

    async def _states(self, task_id: str, listener: Listener) -> AsyncGenerator[TaskState]:
        """The state as it is, each that was published since, and the end; ends early if the task is gone meanwhile."""
        with suppress(TaskNotFound):
            await listener.arrival(FIRST_LOOK_SECONDS)
            yield await self._look(task_id, listener)
            async with aclosing(listener.changes()) as changes:
                async for moment in changes:
                    yield _published(moment) if moment else await self._look(task_id, listener)
            yield await self._look(task_id, listener)

    async def _look(self, task_id: str, listener: Listener) -> TaskState:
        seen = await through_outages(lambda: self._read(task_id))
        listener.after = seen.run
        uncertain = isinstance(seen.state, Live) and seen.state.uncertain
        listener.look_again_at = asyncio.get_running_loop().time() + REREAD_SECONDS if uncertain else math.inf
        return seen.state

    async def _read(self, task_id: str) -> Seen:
        async with self._reading:
            return await self._reader.look(task_id, self._exchange.caller.identity)


async def _until(stopping: asyncio.Event, works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all `works` until the process is about to end. Raises what one of them raises."""
    failures, failed = list[BaseException](), asyncio.Event()

    def look(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            failures.append(failure)
            failed.set()

    tasks = [asyncio.create_task(work, name="tell") for work in works]
    for task in tasks:
        task.add_done_callback(look)
    waits = [asyncio.create_task(event.wait(), name="until") for event in (stopping, failed)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for running in (*waits, *tasks):
            running.cancel()
        await asyncio.gather(*waits, *tasks, return_exceptions=True)
    if failures:
        raise failures[0]


def _published(moment: Moment) -> Live:
    """The task as its workflow published it with that event: what a read would have shown then."""
    run = moment.run
    if run.memo is None:
        raise TaskNotFound
    return live(run.task_id, run.memo, run.snapshot, heartbeat=run.heartbeat)


def _task_ids(params: Mapping[str, Any]) -> list[str]:
    """The tasks that the filter names, once each. Raises MCPError: it does not have that shape (-32602)."""
    wanted = params.get("notifications")
    ids = wanted.get("taskIds", []) if isinstance(wanted, Mapping) else None
    if not isinstance(ids, list) or not all(isinstance(task_id, str) for task_id in ids):
        raise MCPError(INVALID_PARAMS, "params.notifications must be an object; its taskIds, a list of task ids")
    if len(unique := list(dict.fromkeys(ids))) > MAX_TASKS:
        raise MCPError(INVALID_PARAMS, f"One subscription takes at most {MAX_TASKS} tasks; open another one")
    return unique
