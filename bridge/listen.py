"""subscriptions/listen with `taskIds`: what tasks/get would say, each time that it changes (Tasks extension,
"Notifications").

The acknowledgement comes first, and names what is honoured: the tasks of this owner. Each is told as it is now, and
then with every published change, to its end. A question that this client did not declare that it can be asked is not
shown. Progress is not told; it stays with tasks/get.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from bridge.capabilities import askable, require_tasks
from bridge.errors import TaskNotFound
from bridge.exchange import Exchange
from bridge.follow import Moment
from bridge.reader import Reader
from bridge.status import Live, TaskState, Terminal, live
from bridge.tasks import Context, TaskParams, exchange_of
from bridge.waits import through_outages
from bridge.watch import Listener, Watches
from bridge.wire import detailed_task

SUBSCRIPTION_META: Final = "io.modelcontextprotocol/subscriptionId"

MAX_TASKS: Final = 1000
"""Tasks of one subscription."""


class Subscriptions:
    """The handler of subscriptions/listen."""

    def __init__(self, reader: Reader, watches: Watches) -> None:
        self._reader = reader
        self._watches = watches

    async def listen(self, context: Context, _params: TaskParams) -> dict[str, Any]:
        """subscriptions/listen: ends when the client leaves, or with a result when this process is about to end.

        Raises:
            MCPError: -32602, the filter cannot be used; -32021, tasks without the Tasks extension.
            EngineUnavailable, EngineRefused
        """
        exchange = exchange_of(context)
        wanted = _task_ids(context.params or {})
        if wanted:
            require_tasks(exchange.peer.capabilities)
        accepted = [task_id for task_id in wanted if await self._exists(task_id, exchange)]
        subscription = _Subscription(self._reader, exchange)
        async with AsyncExitStack() as stack:
            listeners = {
                task_id: await stack.enter_async_context(self._watches.listening(task_id)) for task_id in accepted
            }
            await subscription.acknowledge({"taskIds": accepted} if accepted else {})
            telling = [asyncio.create_task(subscription.tell(*item), name="tell") for item in listeners.items()]
            try:
                await exchange.stopping.wait()
            finally:
                for task in telling:
                    task.cancel()
                await asyncio.gather(*telling, return_exceptions=True)
        return {"resultType": "complete", "_meta": subscription.meta}

    async def _exists(self, task_id: str, exchange: Exchange) -> bool:
        try:
            await self._reader.read(task_id, exchange.owner)
        except TaskNotFound:
            return False
        return True


class _Subscription:
    """One open stream."""

    def __init__(self, reader: Reader, exchange: Exchange) -> None:
        self.meta: Final = {SUBSCRIPTION_META: exchange.request_id}
        self._reader = reader
        self._exchange = exchange
        self._writing = asyncio.Lock()  # one message at a time: a client that does not read costs one, not one per task

    async def acknowledge(self, honoured: Mapping[str, Any]) -> None:
        """Say what will be told."""
        params = {"_meta": self.meta, "notifications": dict(honoured)}
        await self._exchange.notify("notifications/subscriptions/acknowledged", params)

    async def tell(self, task_id: str, listener: Listener) -> None:
        """Send the task as it is, each time that it differs from what was sent before, to its end."""
        told: dict[str, Any] | None = None
        async with aclosing(self._states(task_id, listener)) as states:
            async for state in states:
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
        """Each state that was published, and the end; ends early if the task is deleted meanwhile."""
        with suppress(TaskNotFound):
            async with aclosing(listener.changes()) as changes:
                async for moment in changes:
                    yield _published(moment) if moment else await self._read(task_id)
            yield await self._read(task_id)

    async def _read(self, task_id: str) -> TaskState:
        return await through_outages(lambda: self._reader.read(task_id, self._exchange.owner))


def _published(moment: Moment) -> Live:
    """The task as its workflow published it with that event: what a read would have shown then."""
    run = moment.run
    if run.memo is None:
        raise TaskNotFound
    return live(run.task_id, run.memo, run.snapshot)


def _task_ids(params: Mapping[str, Any]) -> list[str]:
    """The tasks that the filter names, once each. Raises MCPError: it does not have that shape (-32602)."""
    wanted = params.get("notifications")
    ids = wanted.get("taskIds", []) if isinstance(wanted, Mapping) else None
    if not isinstance(ids, list) or not all(isinstance(task_id, str) for task_id in ids):
        raise MCPError(INVALID_PARAMS, "params.notifications must be an object; its taskIds, a list of task ids")
    if len(unique := list(dict.fromkeys(ids))) > MAX_TASKS:
        raise MCPError(INVALID_PARAMS, f"One subscription takes at most {MAX_TASKS} tasks; open another one")
    return unique
