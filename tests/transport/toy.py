"""A toy server behind the real transport, and a client that speaks raw bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from aiohttp import web
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import ListToolsResult, RequestParams, Tool
from pydantic import Field

from bridge.auth import no_authentication
from bridge.connections import Runner
from bridge.exchange import Caller, Exchange
from bridge.http import SERVER_OPTIONS, HttpSettings, mount_mcp
from bridge.identity import Authenticator, Identity
from bridge.jsonrpc import RequestId
from bridge.older import OlderRevisions
from bridge.scopes import ToolScopes
from bridge.seal import Seal
from workflows.kit.contract import Principal

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "qa", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "echo": {"type": "object"},
    "route": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
}

SESSIONS = Seal(["s" * 32], "session", timedelta(hours=1))
QUESTIONS = Seal(["s" * 32], "question", timedelta(hours=1))


class CallParams(RequestParams):
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class TaskParams(RequestParams):
    task_id: str


@dataclass
class Toy:
    """What the handlers saw and did."""

    started: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    delivered: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)
    delivering: int = 0
    open: bool = True
    slow_delivery: asyncio.Event | None = None
    deliveries_fail: Exception | None = None
    unusable: Exception | None = None
    cancelled_tasks: list[str] = field(default_factory=list)
    cancelled_requests: list[tuple[str | None, RequestId]] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    short: asyncio.Event = field(default_factory=asyncio.Event)

    def server(self) -> Server[Any]:
        async def list_tools(_ctx: ServerRequestContext[Any, Any], _params: RequestParams) -> ListToolsResult:
            tools = [Tool(name=name, input_schema=schema) for name, schema in SCHEMAS.items()]
            return ListToolsResult(tools=tools, ttl_ms=0, cache_scope="public")

        server: Server[Any] = Server("toy", version="1", get_tool_input_schema=self.schema)
        server.add_request_handler("tools/list", RequestParams, list_tools)
        server.add_request_handler("tools/call", CallParams, self.call)
        server.add_request_handler("tasks/get", TaskParams, self.get_task)
        return server

    def older(self) -> OlderRevisions:
        async def cancel_task(task_id: str, _owner: Principal) -> None:
            self.cancelled_tasks.append(task_id)

        async def cancel_request(request_id: RequestId, caller: Caller) -> None:
            self.cancelled_requests.append((caller.peer.session, request_id))

        return OlderRevisions(
            sessions=SESSIONS,
            question_ids=QUESTIONS,
            answers=self,
            cancel_task=cancel_task,
            cancel_request=cancel_request,
            capabilities={"tools": {}},
            server_info={"name": "toy", "version": "1"},
        )

    async def asks(self, _task_id: str, _key: str, _identity: Identity) -> bool:
        return self.open

    async def deliver(self, task_id: str, responses: Mapping[str, Any], caller: Caller) -> bool:
        self.delivering += 1
        if self.slow_delivery is not None:
            await self.slow_delivery.wait()
        if self.unusable is not None and {"action": "cancel"} not in responses.values():
            raise self.unusable
        if self.deliveries_fail is not None:
            raise self.deliveries_fail
        self.delivered.append((task_id, dict(responses), caller.channel))
        return True

    def schema(self, name: str) -> dict[str, Any] | None:
        if name == "no_schema":
            raise RuntimeError("secret detail")
        return SCHEMAS.get(name)

    async def get_task(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> dict[str, Any]:
        assert isinstance(ctx.request, Exchange)
        return {
            "resultType": "complete",
            "taskId": params.task_id,
            "status": "working",
            "owner": ctx.request.owner.subject,
        }

    async def call(self, ctx: ServerRequestContext[Any, Any], params: CallParams) -> dict[str, Any]:
        exchange = ctx.request
        assert isinstance(exchange, Exchange)
        self.exchanges.append(exchange)
        self.started.append(params.name)
        arguments = params.arguments

        async def undo() -> None:
            self.undone.append(params.name)

        exchange.on_undelivered(undo)
        try:
            return await self.run(exchange, params.name, arguments)
        except asyncio.CancelledError:
            self.cancelled.append(params.name)
            raise
        finally:
            self.ended.append(params.name)

    async def run(self, exchange: Exchange, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        match name:
            case "wait":
                await self.release.wait()
            case "ask":
                await exchange.request("ask-1", "elicitation/create", {"message": "Well?"})
                await self.release.wait()
            case "wait_shortly":
                await self.short.wait()
            case "stubborn":
                with_shield = asyncio.ensure_future(self.release.wait())
                while not with_shield.done():
                    try:
                        await asyncio.shield(with_shield)
                    except asyncio.CancelledError:
                        continue
            case "progress":
                for step in range(arguments["steps"]):
                    await exchange.progress(step, arguments["steps"], arguments.get("message"))
                if arguments.get("wait"):
                    await self.release.wait()
            case "flood":
                while True:
                    await exchange.progress(1, None, "x" * 65_536)
            case "late_crash":
                await self.release.wait()
                raise RuntimeError("secret detail")
            case "crash":
                raise RuntimeError("secret detail")
            case "refuse":
                raise MCPError(code=arguments["code"], message="no")
            case "nan":
                return {"resultType": "complete", "content": [], "structuredContent": {"x": float("nan")}}
            case "unencodable":
                return {"resultType": "task", "taskId": "t", "x": float("nan")}
            case "task":
                return {"resultType": "task", "taskId": "t", "status": "working", "ttlMs": None}
            case "self_cancel":
                raise asyncio.CancelledError
            case _:
                pass
        return {"resultType": "complete", "content": [], "structuredContent": arguments}


@dataclass(frozen=True)
class Served:
    """A running toy server."""

    host: str
    port: int
    toy: Toy
    runner: web.AppRunner

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Wire]:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        wire = Wire(reader, writer, f"{self.host}:{self.port}")
        try:
            yield wire
        finally:
            writer.close()
            try:
                await writer.wait_closed()
            except ConnectionError:
                pass

    async def post(self, message: Any, headers: Mapping[str, str | None] | None = None) -> Response:
        """One request on its own connection. `message` is bytes or JSON; a header that is None is left out."""
        async with self.connect() as wire:
            await wire.post(message, headers)
            return await wire.response()


@asynccontextmanager
async def serving(
    settings: HttpSettings | None = None,
    authenticate: Authenticator = no_authentication,
    *,
    tool_scopes: ToolScopes = lambda _name: (),
    resource_metadata: str | None = None,
    **options: Any,
) -> AsyncIterator[Served]:
    """The toy server on a free loopback port."""
    toy = Toy()
    app = web.Application()
    mount_mcp(
        app,
        toy.server(),
        toy.older(),
        settings or HttpSettings(),
        authenticate,
        tool_scopes=tool_scopes,
        resource_metadata=resource_metadata,
    )
    runner = Runner(app, access_log=None, **(SERVER_OPTIONS | options))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    try:
        yield Served(host, port, toy, runner)
    finally:
        toy.release.set()
        await runner.cleanup()


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"].startswith("application/json"), self
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        assert self.headers["content-type"] == "text/event-stream", self
        return [json.loads(line[6:]) for line in self.body.decode("ascii").split("\n") if line.startswith("data: ")]

    @property
    def error(self) -> tuple[int, int, Any]:
        """HTTP status, code, and id ("absent" if there is none)."""
        return self.status, self.json["error"]["code"], self.json.get("id", "absent")


@dataclass
class Wire:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    authority: str

    def head(self, headers: Mapping[str, str | None], line: str = "POST /mcp HTTP/1.1") -> bytes:
        sent = {"Host": self.authority} | dict(headers)
        lines = [line, *(f"{name}: {value}" for name, value in sent.items() if value is not None)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")

    def request(
        self, message: Any, headers: Mapping[str, str | None] | None = None, line: str = "POST /mcp HTTP/1.1"
    ) -> bytes:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        sent: dict[str, str | None] = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(body)),
        }
        return self.head(sent | routing(message) | dict(headers or {}), line) + body

    async def post(self, message: Any, headers: Mapping[str, str | None] | None = None) -> None:
        await self.send(self.request(message, headers))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def response(self, *, no_body: bool = False) -> Response:
        """The next final response."""
        async with asyncio.timeout(20):
            status, headers = await self.response_head()
            if no_body:
                return Response(status, headers, b"")
            if headers.get("transfer-encoding") == "chunked":
                body = b"".join([chunk async for chunk in self.chunks()])
            elif "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            else:
                body = await self.reader.read()
            return Response(status, headers, body)

    async def response_head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(20):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        return int(lines[0].split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def chunks(self) -> AsyncIterator[bytes]:
        async with asyncio.timeout(20):
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                yield (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readuntil(b"\r\n")

    async def is_closed(self) -> bool:
        """Whether the server closes the connection now, without another byte."""
        async with asyncio.timeout(20):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


def routing(message: Any) -> dict[str, str | None]:
    """The headers that a proper client sends along."""
    if not isinstance(message, dict):
        return {"MCP-Protocol-Version": VERSION, "Mcp-Method": "server/discover"}
    headers: dict[str, str | None] = {"MCP-Protocol-Version": VERSION}
    if isinstance(message.get("method"), str):
        headers["Mcp-Method"] = message["method"]
    params = message.get("params")
    if isinstance(params, dict) and isinstance(name := params.get("name", params.get("taskId")), str):
        headers["Mcp-Name"] = name
    return headers


def rpc(method: str, params: Mapping[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """A well-formed request."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META} | dict(params or {})} | members


def discover(**members: Any) -> dict[str, Any]:
    return rpc("server/discover", **members)


def call(
    tool: str, arguments: Mapping[str, Any] | None = None, *, progress: str | int | None = None, **members: Any
) -> dict[str, Any]:
    """A well-formed tools/call, with a progress token if one is given."""
    meta = META if progress is None else META | {"progressToken": progress}
    return rpc("tools/call", {"name": tool, "arguments": dict(arguments or {}), "_meta": meta}, **members)


def get_task(task_id: str) -> dict[str, Any]:
    return rpc("tasks/get", {"taskId": task_id})


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until `condition` holds; fail after ten seconds."""
    try:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110  # what is awaited has no event
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not in time: {what}") from None
