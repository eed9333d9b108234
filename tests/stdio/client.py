"""A plain MCP client over pipes: it writes exactly what it is told, and checks that each line that it reads is one
message."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import IO, Any, Final

from tests.cases.client import FULL, TERMINAL
from tests.support import eventually

LINE_LIMIT: Final = 64 * 1024 * 1024
OLDER: Final = "2025-11-25"

_ids = itertools.count(1)


def meta(capabilities: Mapping[str, Any] = FULL, version: Any = "2026-07-28", name: str = "qa") -> dict[str, Any]:
    """The `_meta` of a request of 2026-07-28."""
    return {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": dict(capabilities),
    }


def request(method: str, params: Mapping[str, Any] | None = None, *, id: Any = None, **of_meta: Any) -> dict[str, Any]:
    """A request of 2026-07-28."""
    number = next(_ids) if id is None else id
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**(params or {}), "_meta": meta(**of_meta)}}


def older_request(method: str, params: Mapping[str, Any] | None = None, *, id: Any = None) -> dict[str, Any]:
    """A request of the older revisions."""
    return {"jsonrpc": "2.0", "id": next(_ids) if id is None else id, "method": method, "params": dict(params or {})}


def call(tool: str, arguments: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """tools/call of 2026-07-28."""
    return request("tools/call", {"name": tool, "arguments": dict(arguments or {})}, **changes)


def older_call(tool: str, arguments: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """tools/call of the older revisions."""
    return older_request("tools/call", {"name": tool, "arguments": dict(arguments or {})}, **changes)


def notification(method: str, **params: Any) -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def cancelled(request_id: Any, reason: str = "enough") -> dict[str, Any]:
    """notifications/cancelled."""
    return notification("notifications/cancelled", requestId=request_id, reason=reason)


def line_of(message: Mapping[str, Any] | bytes) -> bytes:
    """What is written for a message; bytes are written as they are."""
    return message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"


def parsed(line: bytes) -> dict[str, Any]:
    """The message in a line. Fails if it is not exactly one, in ASCII."""
    assert line.endswith(b"\n")
    assert line.isascii()
    message = json.loads(line, parse_constant=_no_json)
    assert isinstance(message, dict)
    assert message["jsonrpc"] == "2.0"
    assert sum(member in message for member in ("result", "error", "method")) == 1
    return message


def _no_json(literal: str) -> None:
    raise AssertionError(f"{literal} on the wire")


class PipeClient:
    """One end of two pipes, and everything that came from the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.messages: list[dict[str, Any]] = []
        self._reader = reader
        self._writer = writer
        self.reading = asyncio.create_task(self._read())

    async def send(self, *messages: Mapping[str, Any] | bytes) -> None:
        """Write all of them at once."""
        self._writer.write(b"".join(map(line_of, messages)))
        await self._writer.drain()

    async def response(self, request_id: Any, *, within: float = 20.0) -> dict[str, Any]:
        """The response with that id, of that type."""

        async def arrived() -> dict[str, Any] | None:
            return next(iter(self.responses(request_id)), None)

        return await eventually(arrived, what=f"the response to {request_id!r:.50}", within=within)

    def responses(self, request_id: Any) -> list[dict[str, Any]]:
        """All that came with that id so far."""
        return [
            message
            for message in self.messages
            if "method" not in message
            and (type(message.get("id")), message.get("id")) == (type(request_id), request_id)
        ]

    async def ask(self, message: Mapping[str, Any], *, within: float = 20.0) -> dict[str, Any]:
        """Send a request and wait for its response."""
        await self.send(message)
        return await self.response(message["id"], within=within)

    async def result(self, message: Mapping[str, Any], *, within: float = 20.0) -> dict[str, Any]:
        """Send a request and wait for its result, less the server's identity stamp."""
        response = await self.ask(message, within=within)
        assert "result" in response, response
        result: dict[str, Any] = response["result"]
        result.pop("_meta", None)
        return result

    async def unaddressed(self, count: int) -> list[dict[str, Any]]:
        """The first `count` errors without id."""

        async def arrived() -> list[dict[str, Any]] | None:
            errors = [message for message in self.messages if "error" in message and "id" not in message]
            return errors if len(errors) >= count else None

        return await eventually(arrived, what=f"{count} errors without id")

    async def asked(self, count: int = 1) -> list[dict[str, Any]]:
        """The first `count` requests of the server."""

        async def arrived() -> list[dict[str, Any]] | None:
            requests = [message for message in self.messages if "method" in message and "id" in message]
            return requests if len(requests) >= count else None

        return await eventually(arrived, what=f"{count} requests of the server")

    async def start(self, tool: str, arguments: Mapping[str, Any] | None = None) -> str:
        """The id of the task that a call of `tool` becomes."""
        result = await self.result(call(tool, arguments))
        assert result["resultType"] == "task", result
        return str(result["taskId"])

    async def get(self, task_id: str) -> dict[str, Any]:
        """tasks/get."""
        return await self.result(request("tasks/get", {"taskId": task_id}))

    async def parked(self, task_id: str) -> list[str]:
        """The keys of the outstanding questions, once there are some."""

        async def outstanding() -> list[str] | None:
            return list((await self.get(task_id)).get("inputRequests", {}))

        return await eventually(outstanding, what="a question")

    async def finished(self, task_id: str, *, within: float = 30.0) -> dict[str, Any]:
        """The task, once its status is terminal."""

        async def terminal() -> dict[str, Any] | None:
            task = await self.get(task_id)
            return task if task["status"] in TERMINAL else None

        return await eventually(terminal, what="a terminal status", within=within)

    async def answer(self, question: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Respond to a request of the server."""
        await self.send({"jsonrpc": "2.0", "id": question["id"], "result": result})

    async def initialize(self, version: str = OLDER, capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The handshake of the older revisions."""
        client = {"name": "older", "version": "1"}
        params = {"protocolVersion": version, "capabilities": dict(capabilities or {}), "clientInfo": client}
        result = await self.result(older_request("initialize", params))
        await self.send(notification("notifications/initialized"))
        return result

    async def alive(self) -> None:
        """Fail unless the process answers promptly."""
        discovered = await self.result(request("server/discover"))
        assert discovered["supportedVersions"][0] == "2026-07-28"

    def end_input(self) -> None:
        """Close what the server reads."""
        self._writer.close()

    async def _read(self) -> None:
        while line := await self._reader.readline():
            self.messages.append(parsed(line))


class StdioClient(PipeClient):
    """One server process and everything that it wrote."""

    def __init__(self, process: asyncio.subprocess.Process, log: IO[bytes]) -> None:
        assert process.stdout is not None and process.stdin is not None
        super().__init__(process.stdout, process.stdin)
        self.process = process
        self._log = log

    @property
    def errors(self) -> str:
        """What is on its standard error so far."""
        self._log.seek(0)
        return self._log.read().decode()

    async def status(self, *, within: float = 30.0) -> int:
        """Its exit status, once it has ended and all that it wrote was read."""
        async with asyncio.timeout(within):
            status = await self.process.wait()
            await self.reading
        return status

    async def close(self) -> None:
        """End it, if it still runs."""
        if self.process.returncode is None:
            self.process.kill()
        self.end_input()
        await self.status()


async def start_process(
    environment: Mapping[str, str],
    *options: str,
    stdin: int | IO[bytes] = asyncio.subprocess.PIPE,
    stdout: int | IO[bytes] = asyncio.subprocess.PIPE,
    stderr: int | IO[bytes] | None = None,
    start_new_session: bool = False,
) -> asyncio.subprocess.Process:
    """Run `mcp-tasks stdio`."""
    command: Sequence[str] = (sys.executable, "-m", "bridge.cli", "stdio", *options)
    return await asyncio.create_subprocess_exec(
        *command,
        env=dict(environment),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        limit=LINE_LIMIT,
        start_new_session=start_new_session,
    )


@asynccontextmanager
async def stdio_client(
    environment: Mapping[str, str], *, tasks: str = "tests.fixtures.cases", **variables: str
) -> AsyncIterator[StdioClient]:
    """A server process and its client, for as long as the context lasts; `variables` are added to its environment."""
    with tempfile.TemporaryFile() as log:
        process = await start_process({**environment, **variables}, "--tasks", tasks, stderr=log)
        client = StdioClient(process, log)
        try:
            yield client
        finally:
            await client.close()
            os.write(2, client.errors.encode())
