"""`mcp-tasks dev`: Temporal, a worker and the bridge on loopback, one command.

Temporal and the worker are children; the bridge is this process. A worker that dies is started again; Temporal's death
ends everything. With a database file tasks, and the key that seals what clients hold, outlive a restart; without one
they do not, and the ready line says so.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from .app import running_bridge
from .child import kill_children, start_child, stop_child
from .dev_server import LOOPBACK, DevServer, DevServerError, dev_server, usable_port
from .logs import set_up_logging
from .service import offered
from .settings import MIN_SEALING_KEY_BYTES, PREFIX, BridgeSettings, SettingsError
from .stopping import stop_signals
from .worker import GRACE

log = logging.getLogger(__name__)

MIN_BACK_OFF: Final = 0.5
MAX_BACK_OFF: Final = 30.0
WORKER_READY_WITHIN: Final = 60.0
WORKER_PATIENCE: Final = GRACE.total_seconds() + 5


@dataclass(frozen=True, kw_only=True)
class DevOptions:
    """The options of `mcp-tasks dev`; a port of 0 is any free one, a value of None the setting's."""

    port: int | None
    temporal_port: int
    ui_port: int
    database: Path | None
    tasks: str | None
    catalog: Path | None
    as_json: bool


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What the ready line says."""

    mcp: str
    temporal: str
    ui: str | None
    database: str | None

    def line(self, *, as_json: bool) -> str:
        """One line, for people or as JSON."""
        if as_json:
            return json.dumps(asdict(self))
        kept = (
            f"tasks are kept in {self.database}"
            if self.database
            else "tasks are lost on restart (--db FILE keeps them)"
        )
        return f"mcp-tasks dev is ready: MCP {self.mcp} · Temporal {self.temporal} · UI {self.ui} · {kept}"


async def run_dev(options: DevOptions) -> None:
    """Run the stack until SIGTERM or SIGINT.

    Raises:
        OperatorError: It cannot start, or Temporal ended.
    """
    async with AsyncExitStack() as stack:
        key = stack.enter_context(database_key(options.database)) if options.database else None
        settings = dev_settings(options, key)
        set_up_logging(settings.log_level)
        # What cannot work is reported before anything is started
        usable_port(settings.port, "the MCP endpoint")
        offered(settings)
        stop = await stack.enter_async_context(stop_signals(at_once=kill_children))
        server = await stack.enter_async_context(
            dev_server(port=options.temporal_port, ui_port=options.ui_port, database=options.database)
        )
        _address_temporal(server.environment)
        if settings.offers_tasks:
            await stack.enter_async_context(WorkerChild(settings).supervised())
        url = await stack.enter_async_context(running_bridge(settings))
        ready = Ready(
            mcp=url, temporal=server.address, ui=server.ui, database=str(options.database) if options.database else None
        )
        sys.stdout.write(ready.line(as_json=options.as_json) + "\n")
        sys.stdout.flush()
        await _until_stopped(stop, server)


def dev_settings(options: DevOptions, key: SecretStr | None) -> BridgeSettings:
    """The bridge's settings of a development stack: loopback, alone, sealing with the database's key if there is
    one."""
    keys_are_set = f"{PREFIX}SEALING_KEYS" in os.environ
    return BridgeSettings.load(
        host=LOOPBACK,
        port=options.port,
        tasks=options.tasks,
        catalog=options.catalog,
        single_replica=True,
        sealing_keys=None if keys_are_set or key is None else (key,),
    )


@contextmanager
def database_key(database: Path) -> Iterator[SecretStr]:
    """The sealing key kept beside `database`, made at first use, for its owner only; it is also the database's lock.

    Raises:
        SettingsError: Another process has the database open, or the files cannot be used.
    """
    path = database.with_name(f"{database.name}.key")
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise SettingsError(f"--db {database}: {path} cannot be used: {error.strerror}") from error
    with os.fdopen(descriptor, "r+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SettingsError(f"--db {database}: another mcp-tasks dev has it open") from error
        if not (key := file.read().strip()):
            key = secrets.token_hex(MIN_SEALING_KEY_BYTES)
            file.write(key + "\n")
            file.flush()
        yield SecretStr(key)


class WorkerChild:
    """A worker process that is started again when it dies."""

    def __init__(self, settings: BridgeSettings) -> None:
        self._command = [
            *(sys.executable, "-m", "bridge.cli", "worker", "--json"),
            *("--tasks", settings.tasks, "--task-queue", settings.task_queue),
        ]
        self._process: asyncio.subprocess.Process | None = None

    @asynccontextmanager
    async def supervised(self) -> AsyncIterator[None]:
        """Keep a worker running within the context; entered once the first one polls.

        Raises:
            DevServerError: The first worker does not start.
        """
        if not await self._start():
            raise DevServerError("the worker did not start")
        supervisor = asyncio.create_task(self._supervise())
        try:
            yield
        finally:
            supervisor.cancel()
            await asyncio.wait({supervisor})
            if self._process:
                await stop_child(self._process, ask=signal.SIGTERM, patience=WORKER_PATIENCE)

    async def _supervise(self) -> None:
        pause = MIN_BACK_OFF
        while self._process:
            status = await self._process.wait()
            await stop_child(self._process, ask=signal.SIGKILL, patience=1)
            log.warning("worker.died", extra={"status": status, "restart_in_seconds": pause})
            await asyncio.sleep(pause)
            pause = MIN_BACK_OFF if await self._start() else min(pause * 2, MAX_BACK_OFF)

    async def _start(self) -> bool:
        """Start a worker and wait for its ready line; False if it ended instead, or took too long and was killed."""
        process = self._process = await start_child(self._command, stdout=asyncio.subprocess.PIPE)
        if process.stdout is None:
            raise AssertionError("a pipe was asked for")
        try:
            async with asyncio.timeout(WORKER_READY_WITHIN):
                return bool(await process.stdout.readline())
        except TimeoutError:
            await stop_child(process, ask=signal.SIGKILL, patience=1)
            return False


def _address_temporal(environment: Mapping[str, str]) -> None:
    """Make this process and its children find the development server as they find any: by the standard variables."""
    os.environ.clear()
    os.environ.update(environment)


async def _until_stopped(stop: asyncio.Event, server: DevServer) -> None:
    stopped = asyncio.create_task(stop.wait())
    ended = asyncio.create_task(server.process.wait())
    await asyncio.wait({stopped, ended}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    ended.cancel()
    if not stop.is_set():
        raise DevServerError(f"Temporal ended unexpectedly, with status {server.process.returncode}")
