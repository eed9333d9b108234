"""An open subscription as a case sees it, and how one is opened."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from tests.cases.client import FULL, McpClient
from tests.support import eventually

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"


class Stream:
    """An open subscription, and what came on it so far."""

    def __init__(self, response: aiohttp.ClientResponse, request_id: Any) -> None:
        self.response = response
        self.id = request_id
        self.messages: list[dict[str, Any]] = []
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for line in self.response.content:
            if line.startswith(b"data:"):
                self.messages.append(json.loads(line.removeprefix(b"data:")))

    def tasks(self, task_id: str) -> list[dict[str, Any]]:
        """What was told of a task."""
        return [
            message["params"]
            for message in self.messages
            if message.get("method") == "notifications/tasks" and message["params"]["taskId"] == task_id
        ]

    async def told(self, task_id: str, status: str) -> dict[str, Any]:
        """The first notification of a task with this status."""

        async def found() -> dict[str, Any] | None:
            return next((task for task in self.tasks(task_id) if task["status"] == status), None)

        return await eventually(found, what=f"{task_id} {status}")


@asynccontextmanager
async def listening(
    client: McpClient, task_ids: Sequence[str], capabilities: Mapping[str, Any] = FULL, **filters: Any
) -> AsyncIterator[Stream]:
    """A subscription to these tasks."""
    params = {"notifications": {"taskIds": list(task_ids), **filters}}
    body = client.body("subscriptions/listen", params, capabilities=capabilities)
    headers = client.headers("subscriptions/listen", params)
    data = io.BytesIO(json.dumps(body).encode())
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(client.url, data=data, headers=headers) as response,
    ):
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        stream = Stream(response, body["id"])
        try:
            yield stream
        finally:
            stream.reading.cancel()


async def acknowledged(stream: Stream) -> dict[str, Any]:
    """What the acknowledgement honours."""

    async def first() -> dict[str, Any] | None:
        return stream.messages[0] if stream.messages else None

    message = await eventually(first, what="the acknowledgement")
    assert message["method"] == "notifications/subscriptions/acknowledged"
    assert message["params"]["_meta"] == {SUBSCRIPTION: stream.id}
    return dict(message["params"]["notifications"])
