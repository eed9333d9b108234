"""Subscriptions over HTTP and over stdio, in one form: what is true of one transport has to be true of the other.

Everything that came is kept: over HTTP the bytes of the stream as well, of which no line is too long to be read.
"""

from __future__ import annotations

import asyncio
import io
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

from tests.cases.client import FULL, TERMINAL, McpClient
from tests.cases.listening import SUBSCRIPTION
from tests.stdio.client import StdioClient, cancelled, request
from tests.support import eventually, unique


class Subscriber(ABC):
    """An open subscription, and what came on it so far."""

    def __init__(self, request_id: Any) -> None:
        self.id = request_id

    @property
    @abstractmethod
    def messages(self) -> list[dict[str, Any]]:
        """Its messages in order: the acknowledgement, what was told, the response at its end."""

    async def acknowledged(self) -> dict[str, Any]:
        """What the acknowledgement honours."""

        async def first() -> dict[str, Any] | None:
            return next(iter(self.messages), None)

        message = await eventually(first, what="the acknowledgement")
        assert message["method"] == "notifications/subscriptions/acknowledged"
        return dict(message["params"]["notifications"])

    def tasks(self, task_id: str) -> list[dict[str, Any]]:
        """What was told of a task, as tasks/get would answer it."""
        found = []
        for message in self.messages:
            if message.get("method") == "notifications/tasks" and message["params"]["taskId"] == task_id:
                task = dict(message["params"])
                assert same_id(task.pop("_meta"), {SUBSCRIPTION: self.id})
                found.append({"resultType": "complete", **task})
        return found

    async def told(self, task_id: str, *statuses: str, within: float = 20.0) -> dict[str, Any]:
        """The first that was told of a task with one of these statuses; of any, if none is named."""

        async def found() -> dict[str, Any] | None:
            return next((task for task in self.tasks(task_id) if not statuses or task["status"] in statuses), None)

        return await eventually(found, what=f"{task_id} {' or '.join(statuses)} told to {self.id!r}", within=within)

    async def ended(self, task_id: str, *, within: float = 30.0) -> dict[str, Any]:
        """The terminal state that was told; fails if something was told after it."""
        task = await self.told(task_id, *TERMINAL, within=within)
        assert self.tasks(task_id)[-1] == task
        assert sum(other["status"] in TERMINAL for other in self.tasks(task_id)) == 1
        return task


class HttpSubscriber(Subscriber):
    """A subscription that is the stream of a POST."""

    def __init__(self, response: aiohttp.ClientResponse, request_id: Any) -> None:
        super().__init__(request_id)
        self.raw = bytearray()
        self.response = response
        self._messages: list[dict[str, Any]] = []
        self._parsed = 0
        self.reading = asyncio.create_task(self._read())

    @property
    def messages(self) -> list[dict[str, Any]]:
        while (end := self.raw.find(b"\n\n", self._parsed)) >= 0:
            event = bytes(self.raw[self._parsed : end])
            self._parsed = end + 2
            data = [line.removeprefix(b"data: ") for line in event.split(b"\n") if line.startswith(b"data: ")]
            if data:
                self._messages.append(json.loads(b"\n".join(data)))
        return self._messages

    async def _read(self) -> None:
        """To the end of the stream, or of the server."""
        with suppress(aiohttp.ClientError):
            async for chunk in self.response.content.iter_any():
                self.raw += chunk


class PipeSubscriber(Subscriber):
    """A subscription that shares the pipe with everything else."""

    def __init__(self, server: StdioClient, request_id: Any) -> None:
        super().__init__(request_id)
        self._server = server

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [message for message in self._server.messages if self._is_mine(message)]

    def _is_mine(self, message: Mapping[str, Any]) -> bool:
        if "method" not in message:
            return same_id(message.get("id"), self.id)
        return same_id(message["params"].get("_meta", {}).get(SUBSCRIPTION), self.id)


def same_id(left: Any, right: Any) -> bool:
    """Whether two ids, or objects with ids, are equal with their types: 7 is not "7"."""
    return json.dumps(left) == json.dumps(right)


def listen_params(task_ids: Sequence[str]) -> dict[str, Any]:
    """The params of subscriptions/listen."""
    return {"notifications": {"taskIds": list(task_ids)}}


@asynccontextmanager
async def http_subscriber(
    client: McpClient, task_ids: Sequence[str], *, id: Any = None, capabilities: Mapping[str, Any] = FULL
) -> AsyncIterator[HttpSubscriber]:
    """A subscription over HTTP; leaving the context closes its connection."""
    params = listen_params(task_ids)
    body = client.body("subscriptions/listen", params, capabilities=capabilities)
    if id is not None:
        body["id"] = id
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
        session.post(
            client.url,
            data=io.BytesIO(json.dumps(body).encode()),
            headers=client.headers("subscriptions/listen", params),
        ) as response,
    ):
        assert (response.status, response.content_type) == (200, "text/event-stream"), await response.text()
        subscriber = HttpSubscriber(response, body["id"])
        try:
            await subscriber.acknowledged()
            yield subscriber
        finally:
            subscriber.reading.cancel()


async def pipe_subscriber(
    server: StdioClient, task_ids: Sequence[str], *, id: Any = None, capabilities: Mapping[str, Any] = FULL
) -> PipeSubscriber:
    """A subscription over stdio, open until its request is cancelled or the process ends."""
    subscriber = PipeSubscriber(server, unique("listen") if id is None else id)
    await server.send(
        request("subscriptions/listen", listen_params(task_ids), id=subscriber.id, capabilities=capabilities)
    )
    await subscriber.acknowledged()
    return subscriber


@asynccontextmanager
async def piped(server: StdioClient, task_ids: Sequence[str]) -> AsyncIterator[PipeSubscriber]:
    """A subscription over stdio; leaving the context cancels its request, if the process is still there."""
    subscriber = await pipe_subscriber(server, task_ids)
    try:
        yield subscriber
    finally:
        if server.process.returncode is None:
            with suppress(ConnectionError):
                await server.send(cancelled(subscriber.id))


@asynccontextmanager
async def both(
    client: McpClient, server: StdioClient, task_ids: Sequence[str]
) -> AsyncIterator[tuple[HttpSubscriber, PipeSubscriber]]:
    """A subscription over each transport; both end with the context."""
    async with http_subscriber(client, task_ids) as over_http, piped(server, task_ids) as over_stdio:
        yield over_http, over_stdio
