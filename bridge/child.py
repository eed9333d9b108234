"""Child processes that never outlive us.

Each runs in a session of its own, so that a Ctrl-C on the terminal reaches only the parent, which then ends its
children in order; and each is leashed to the parent for the case that the parent is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

_LEASH: Final = Path(__file__).with_name("leash.py")
_started: Final[set[asyncio.subprocess.Process]] = set()


async def start_child(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
) -> asyncio.subprocess.Process:
    """Start `command` (its first word a path) without standard input; it inherits our environment if none is given."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), *command),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    _started.add(process)
    return process


async def stop_child(process: asyncio.subprocess.Process, *, ask: signal.Signals, patience: float) -> None:
    """Ask `process` to end, and kill it after `patience` seconds. Returns once it is gone; fine if it already was."""
    try:
        _signal(process, ask)
        async with asyncio.timeout(patience):
            await process.wait()
    except TimeoutError:
        pass
    finally:  # also if we are cancelled while we wait
        _signal(process, signal.SIGKILL)
        await process.wait()
        _started.discard(process)


def kill_children() -> None:
    """Kill every child that still runs, without waiting: for an end at once."""
    for process in _started:
        _signal(process, signal.SIGKILL)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        try:
            process.send_signal(number)
        except ProcessLookupError:
            return
