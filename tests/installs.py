"""Programs of others, installed at first use: what tests and the benchmark run beside the product, never inside it.

A Python program with dependencies of its own gets an environment of its own in the user's cache, which is complete once
its mark exists. None of it gets into our lock files. What cannot be installed is a reason to skip, in one line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bridge.child import start_child, stop_child

INSTALL_SECONDS: Final = 300.0


class Uninstallable(Exception):
    """A program cannot be had here; the message is one line that says why."""


async def python_environment(requirements: Sequence[str]) -> Path:
    """The interpreter of an environment that has `requirements`, made now if it is not there yet.

    Raises:
        Uninstallable: It cannot be made.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = "-".join((*requirements, f"py{sys.version_info.major}.{sys.version_info.minor}")).replace("==", "-")
    home = cache / "mcp-temporal-tasks" / version
    python = home / "bin" / "python"
    mark = home / "complete"
    if not mark.exists():
        await run_installer(sys.executable, "-m", "venv", "--clear", str(home))
        await run_installer(str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *requirements)
        mark.touch()
    return python


async def run_installer(*command: str, environment: Mapping[str, str] | None = None) -> None:
    """Run `command`, whose first word is a path, to its end.

    Raises:
        Uninstallable: It failed, with the line that says why, or took longer than `INSTALL_SECONDS`.
    """
    process = await start_child(
        command, environment=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(INSTALL_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        raise Uninstallable(f"{Path(command[0]).name} took too long") from None
    finally:
        await stop_child(process, ask=signal.SIGKILL, patience=1)
    if process.returncode != 0:
        lines = output.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        errors = [line for line in lines if line.lower().startswith(("error", "npm error"))]
        raise Uninstallable(f"{Path(command[0]).name} failed: {(errors or lines[-1:])[0]}")
