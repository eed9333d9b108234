"""`python -m bridge.demo`: exit status 0 only if each task ended as expected."""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from pathlib import Path
from typing import Final

from mcp import MCPError

from bridge.settings import OperatorError
from bridge.stopping import leave

from .client import connected
from .stack import stack_in
from .story import DemoError, Story
from .transcript import Transcript
from .world import world_in

AT_MOST_SECONDS: Final = 240.0


async def play(folder: Path, transcript: Transcript) -> None:
    """Build the stack in `folder` and play the story."""
    async with world_in(folder) as world, stack_in(folder, world.environment) as stack:
        transcript.line("operator", f"Temporal runs at {stack.server.address}, its web page at {stack.server.ui}")
        await stack.start("worker")
        transcript.line("operator", "a worker runs")
        bridge = await stack.start("bridge", "--port", "0")
        transcript.line("operator", f"the bridge serves MCP at {bridge['mcp']}")
        async with connected(bridge["mcp"]) as client:
            await Story(transcript, client, stack, world).play()


async def run() -> int:
    """Play in a temporary folder; the exit status."""
    transcript = Transcript()
    with tempfile.TemporaryDirectory(prefix="mcp-tasks-demo-") as name:
        try:
            async with asyncio.timeout(AT_MOST_SECONDS):
                await play(Path(name), transcript)
        except (DemoError, OperatorError, MCPError, TimeoutError) as error:
            sys.stderr.write(f"demo failed: {str(error) or type(error).__name__}\n{_logs(Path(name))}")
            return 1
    transcript.heading("Every task ended as expected.")
    return 0


def _logs(folder: Path) -> str:
    """The ends of the processes' logs."""
    tails = {log.name: log.read_text("utf-8", "replace").splitlines()[-15:] for log in sorted(folder.glob("*.log"))}
    return "".join(f"--- {name}\n" + "".join(f"{line}\n" for line in lines) for name, lines in tails.items())


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    leave(asyncio.run(run()))
