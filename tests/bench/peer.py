"""The peer, fastmcp-tasks on Redis, installed at first use into an environment of its own in the user's cache.

It is given what makes it faster (uvloop and httptools, which uvicorn takes up by itself), since we use uvloop too: a
ratio should compare designs, not event loops. It never gets into our lock files. If it cannot be had, the benchmark
says why and measures the rest.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from bridge.child import start_child, stop_child
from bridge.dev_server import LOOPBACK, free_port
from tests.bench.wire import McpServer, McpSession
from tests.installs import Uninstallable, python_environment, run_installer

REQUIREMENTS: Final = ("fastmcp-tasks==4.1.4", "uvloop", "httptools")
SERVER: Final = Path(__file__).with_name("peer_server.py")
READY_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Peer:
    """A running peer: its endpoint, and its processes."""

    url: str
    pids: Sequence[int]


class PeerMissing(Exception):
    """There is no peer to compare with; the message is one line that says why."""


@asynccontextmanager
async def running_peer(console: Console) -> AsyncIterator[Peer]:
    """Redis and the peer's server, on loopback.

    Raises:
        PeerMissing: It cannot be installed or does not start.
    """
    try:
        redis = await _redis(console)
        console.print(f"The peer is {', '.join(REQUIREMENTS)}, installed at first use ...")
        python = await python_environment(REQUIREMENTS)
    except Uninstallable as reason:
        raise PeerMissing(str(reason)) from None
    redis_port, port = free_port(), free_port()
    url = f"http://{LOOPBACK}:{port}/mcp"
    async with AsyncExitStack() as stack:
        store = await _start(
            stack, redis, "--port", str(redis_port), "--bind", LOOPBACK, "--save", "", "--appendonly", "no"
        )
        await _listening(redis_port, "Redis")
        server = await _start(stack, str(python), str(SERVER), str(port), f"redis://{LOOPBACK}:{redis_port}/0")
        await _listening(port, "the peer")
        session = await McpSession.connect(McpServer(url))
        try:
            await session.create()
        finally:
            await session.close()
        yield Peer(url, (store, server))


async def _redis(console: Console) -> str:
    if found := shutil.which("redis-server"):
        return found
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise PeerMissing("redis-server is not installed (Debian: apt-get install redis-server)")
    console.print("Installing redis-server (once) ...")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # RUNLEVEL 1: start no service
    await run_installer(apt, "update", "-qq", environment=quiet)
    await run_installer(apt, "install", "-qq", "-y", "--no-install-recommends", "redis-server", environment=quiet)
    if found := shutil.which("redis-server"):
        return found
    raise PeerMissing("redis-server was installed but is not on PATH")


async def _start(stack: AsyncExitStack, *command: str) -> int:
    process = await start_child(command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL)
    stack.push_async_callback(stop_child, process, ask=signal.SIGTERM, patience=5)
    return process.pid


async def _listening(port: int, what: str) -> None:
    try:
        async with asyncio.timeout(READY_SECONDS):
            while True:
                try:
                    _, writer = await asyncio.open_connection(LOOPBACK, port)
                except ConnectionRefusedError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    return
    except TimeoutError:
        raise PeerMissing(f"{what} did not start") from None
