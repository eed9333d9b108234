"""Users who call a tool at a steady rate and poll each of their tasks at its interval, until all have ended.

A user has two connections, because one would have polls wait behind calls, which would say nothing about the bridge.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from bridge.errors import INTERNAL_ERROR
from tests.bench.wire import McpServer, McpSession, McpStream
from tests.cases.client import TERMINAL

TOOL: Final = "slow"
IDLE_SECONDS: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`tasks` calls of `slow(work)` by `users` users over `seconds`, with a LISTEN for `listens` of the tasks. What has
    not ended `patience` seconds after the last call is lost.
    """

    users: int
    tasks: int
    seconds: float
    work: float
    listens: int = 0
    patience: float = 180.0


@dataclass
class Tally:
    """What came of it. Times are in milliseconds; `errors` are counted by JSON-RPC code and message."""

    started: int = 0
    completed: int = 0
    lost: int = 0
    listened: int = 0
    not_told: int = 0
    errors: Counter[tuple[int, str]] = field(default_factory=Counter)
    calls: list[float] = field(default_factory=list)
    gets: list[float] = field(default_factory=list)

    def failed(self, error: Mapping[str, Any]) -> None:
        """Count an error response."""
        self.errors[error["code"], error["message"]] += 1

    @property
    def internal_errors(self) -> int:
        """How many of the errors were -32603."""
        return sum(count for (code, _), count in self.errors.items() if code == INTERNAL_ERROR)

    @property
    def open(self) -> int:
        """Tasks that have not been seen at their end yet."""
        return self.started - self.completed - self.lost


async def drive(url: str, plan: Plan, tally: Tally) -> None:
    """Do as planned. Raises ConnectionError or EOFError when the bridge goes away."""
    server = McpServer(url)
    begin = asyncio.get_running_loop().time()
    users = [await _User.connect(server, plan, tally, begin) for _ in range(plan.users)]
    try:
        async with asyncio.TaskGroup() as group:
            for number, user in enumerate(users):
                calling = group.create_task(user.call(number))
                group.create_task(user.poll(calling))
    finally:
        for user in users:
            await user.close()


class _Client(McpSession):
    async def ask(self, method: str, params: Mapping[str, Any], name: str) -> tuple[dict[str, Any], float]:
        """The whole answer, and how long it took."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        answer: dict[str, Any] = json.loads(await self._exchange(self._server.request(method, params, name)))
        return answer, (clock() - begun) * 1000


class _User:
    def __init__(self, server: McpServer, clients: tuple[_Client, _Client], plan: Plan, tally: Tally, begin: float):
        self._server = server
        self._caller, self._poller = clients
        self._plan = plan
        self._tally = tally
        self._begin = begin
        self._due: list[tuple[float, str]] = []
        self._streams: list[asyncio.Task[None]] = []

    @classmethod
    async def connect(cls, server: McpServer, plan: Plan, tally: Tally, begin: float) -> Self:
        clients = (await _Client.connect(server), await _Client.connect(server))
        return cls(server, clients, plan, tally, begin)

    async def close(self) -> None:
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        await self._caller.close()
        await self._poller.close()

    async def call(self, number: int) -> None:
        """This user's share of the calls, each at its time."""
        plan, tally, clock = self._plan, self._tally, asyncio.get_running_loop().time
        for task in range(number, plan.tasks, plan.users):
            await asyncio.sleep(self._begin + task * plan.seconds / plan.tasks - clock())
            params = {"name": TOOL, "arguments": {"seconds": plan.work}}
            answer, took = await self._caller.ask("tools/call", params, TOOL)
            tally.calls.append(took)
            if "error" in answer:
                tally.failed(answer["error"])
                continue
            tally.started += 1
            handle = answer["result"]
            heapq.heappush(self._due, (clock() + handle["pollIntervalMs"] / 1000, handle["taskId"]))
            if plan.listens and task % (plan.tasks // plan.listens) == 0:
                self._streams.append(asyncio.create_task(self._listen(handle["taskId"])))

    async def poll(self, calling: asyncio.Task[None]) -> None:
        """Read each task at its interval until it has ended."""
        tally, clock = self._tally, asyncio.get_running_loop().time
        until = self._begin + self._plan.seconds + self._plan.patience
        while (self._due or not calling.done()) and clock() < until:
            if not self._due or self._due[0][0] > clock():
                await asyncio.sleep(IDLE_SECONDS)
                continue
            _, task_id = heapq.heappop(self._due)
            answer, took = await self._poller.ask("tasks/get", {"taskId": task_id}, task_id)
            tally.gets.append(took)
            if "error" in answer:
                tally.failed(answer["error"])
                heapq.heappush(self._due, (clock() + 1, task_id))
            elif (task := answer["result"])["status"] not in TERMINAL:
                heapq.heappush(self._due, (clock() + task["pollIntervalMs"] / 1000, task_id))
            elif task["status"] == "completed" and not task["result"].get("isError"):
                tally.completed += 1
            else:
                tally.lost += 1
        tally.lost += len(self._due)
        if self._streams:
            _, silent = await asyncio.wait(self._streams, timeout=10)
            tally.not_told += len(silent)

    async def _listen(self, task_id: str) -> None:
        stream = await McpStream.connect(self._server)
        try:
            await stream.listen([task_id])
            while (await stream.task())["status"] not in TERMINAL:
                pass
            self._tally.listened += 1
        finally:
            await stream.close()
