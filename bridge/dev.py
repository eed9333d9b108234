"""`mcp-tasks dev`: Temporal, a worker and the bridge on loopback, one command.

Temporal and the worker are children; the bridge is this process. A worker that dies is started again; Temporal's death
ends everything. With a database file tasks, the key that seals what clients hold, and the key that encrypts what
Temporal stores outlive a restart; without one they do not, and the ready line says so. Where something is encrypted, a
codec server decrypts it for Temporal's web page, which is on loopback like everything else.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from .app import running_bridge
from .child import kill_children, start_child, stop_child
from .codec import EncryptionCodec, key_ring
from .codec_server import CodecService, everybody, running_codec_server
from .dev_keys import DatabaseKeys, answer_public_key, database_keys, new_answer_key
from .dev_server import LOOPBACK, DevServer, DevServerError, dev_server, usable_port
from .logs import set_up_logging
from .service import offered
from .settings import PREFIX, BridgeSettings
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
    codec: str | None

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
        keys = stack.enter_context(database_keys(options.database)) if options.database else None
        answers = dev_answer_key(keys)
        settings = dev_settings(options, keys, answers)
        set_up_logging(settings.log_level)
        # What cannot work is reported before anything is started
        usable_port(settings.port, "the MCP endpoint")
        offered(settings)
        stop = await stack.enter_async_context(stop_signals(at_once=kill_children))
        ui_port = usable_port(options.ui_port, "Temporal's web page")
        codec = (
            await stack.enter_async_context(_codec_server_for(settings, ui_port)) if settings.encryption_keys else None
        )
        server = await stack.enter_async_context(
            dev_server(port=options.temporal_port, ui_port=ui_port, database=options.database, ui_codec=codec)
        )
        _address_temporal(server.environment)
        if settings.offers_tasks:
            await stack.enter_async_context(WorkerChild(settings, answers).supervised())
        url = await stack.enter_async_context(running_bridge(settings))
        ready = Ready(
            mcp=url,
            temporal=server.address,
            ui=server.ui,
            database=str(options.database) if options.database else None,
            codec=codec,
        )
        sys.stdout.write(ready.line(as_json=options.as_json) + "\n")
        sys.stdout.flush()
        await _until_stopped(stop, server)


def dev_answer_key(keys: DatabaseKeys | None) -> SecretStr | None:
    """The private key of this stack's worker, for what is sealed for it; None if the environment has a pair."""
    if any(f"{PREFIX}{name}" in os.environ for name in ("ANSWER_PUBLIC_KEY", "ANSWER_PRIVATE_KEYS")):
        return None
    return keys.answers if keys else new_answer_key()


def dev_settings(options: DevOptions, keys: DatabaseKeys | None, answers: SecretStr | None = None) -> BridgeSettings:
    """The bridge's settings of a development stack: loopback, alone, with the database's keys if there is one and the
    environment names none, and with the public half of `answers`.
    """

    def ring(setting: str, key: SecretStr | None) -> tuple[SecretStr, ...] | None:
        return None if key is None or f"{PREFIX}{setting}" in os.environ else (key,)

    return BridgeSettings.load(
        host=LOOPBACK,
        port=options.port,
        tasks=options.tasks,
        catalog=options.catalog,
        single_replica=True,
        sealing_keys=ring("SEALING_KEYS", keys.sealing if keys else None),
        encryption_keys=ring("ENCRYPTION_KEYS", keys.encryption if keys else None),
        answer_public_key=answer_public_key(answers) if answers else None,
    )


def _codec_server_for(settings: BridgeSettings, ui_port: int) -> AbstractAsyncContextManager[str]:
    """A codec server for the web page on `ui_port`, on any free port of loopback. It asks for no token, which the page
    sends over TLS alone: who is on this machine can read everything else here as well.
    """
    service = CodecService(
        codec=EncryptionCodec(key_ring(settings.encryption_keys)),
        authenticate=everybody,
        origins={f"http://{name}:{ui_port}" for name in (LOOPBACK, "localhost")},
        any_host=False,
    )
    return running_codec_server(service, LOOPBACK, 0)


class WorkerChild:
    """A worker process that is started again when it dies."""

    def __init__(self, settings: BridgeSettings, answers: SecretStr | None) -> None:
        """`answers` is the private key for answers that are sealed for the worker."""
        self._command = [
            *(sys.executable, "-m", "bridge.cli", "worker", "--json"),
            *("--tasks", settings.tasks, "--task-queue", settings.task_queue),
        ]
        ring = ",".join(key.get_secret_value() for key in settings.encryption_keys)
        self._keys = {f"{PREFIX}ENCRYPTION_KEYS": ring} if ring else {}
        if answers:
            self._keys[f"{PREFIX}ANSWER_PRIVATE_KEYS"] = answers.get_secret_value()
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
        process = self._process = await start_child(
            self._command, environment={**os.environ, **self._keys}, stdout=asyncio.subprocess.PIPE
        )
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
