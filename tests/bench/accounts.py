"""What work cost, as those say who did it: processes their processor time and memory (Linux's /proc), Temporal the
calls that it served (its own counters, so that no retry is missed and no program has to be changed to be counted).
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bridge.dev_server import LOOPBACK, NAMESPACE
from tests.bench.measure import Sample

CLIENT: Final = "client"
"""This process: the load generator, and the bare Temporal client."""

CLIENT_CALLS: Final = frozenset(
    {
        "CountWorkflowExecutions",
        "DescribeNamespace",
        "DescribeTaskQueue",
        "DescribeWorkflowExecution",
        "GetWorkflowExecutionHistory",
        "GetWorkflowExecutionHistoryReverse",
        "ListWorkflowExecutions",
        "PollWorkflowExecutionHistory",
        "QueryWorkflow",
        "RequestCancelWorkflowExecution",
        "SignalWithStartWorkflowExecution",
        "SignalWorkflowExecution",
        "StartWorkflowExecution",
    }
)
"""What bridges and plain clients call. A worker calls others, but for the history of a run that left its cache."""

_SERVED: Final = re.compile(
    rf'^service_requests{{namespace="{NAMESPACE}",operation="(\w+)",service_name="frontend"}} (\S+)$', re.MULTILINE
)
_LISTENING: Final = "0A"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_MIN_CPU: Final = 0.01
"""Milliseconds an operation: less is what an idle process does."""


IDLE_SECONDS: Final = 0.3
IDLE_SHARE: Final = 0.15
"""Of one core, of all processes together: less is polls, timers, and collections of garbage."""
IDLE_WITHIN_SECONDS: Final = 15.0

FLUSH_SECONDS: Final = 1.2
"""Temporal brings its counters up to date once a second."""


class Accounts:
    """Of some processes, by part, and of one Temporal."""

    def __init__(self, processes: Mapping[str, Sequence[int]], metrics_port: int) -> None:
        self._processes = processes
        self._metrics_port = metrics_port

    def processor(self) -> dict[str, float]:
        """Processor seconds so far, by part."""
        spent = {part: sum(map(processor_seconds, pids)) for part, pids in self._processes.items()}
        return {**spent, CLIENT: time.process_time()}

    def processor_since(self, before: Mapping[str, float], operations: float) -> Sample:
        """Figures of so many operations: milliseconds for each, by part."""
        spent = {part: (seconds - before.get(part, seconds)) * 1e3 for part, seconds in self.processor().items()}
        return {f"cpu {part}": ms / operations for part, ms in spent.items() if ms / operations >= _MIN_CPU}

    async def idle(self) -> None:
        """Wait until the processes have little to do, but not for ever."""
        for _ in range(round(IDLE_WITHIN_SECONDS / IDLE_SECONDS)):
            before = sum(self.processor().values())
            await asyncio.sleep(IDLE_SECONDS)
            if sum(self.processor().values()) - before < IDLE_SHARE * IDLE_SECONDS:
                return

    async def calls(self) -> Counter[str]:
        """The calls that clients have made to Temporal so far, by name, those that it refused included."""
        await asyncio.sleep(FLUSH_SECONDS)
        page = await _page(self._metrics_port)
        return Counter({call: int(float(count)) for call, count in _SERVED.findall(page) if call in CLIENT_CALLS})

    async def calls_since(self, before: Counter[str], operations: float) -> Sample:
        """Figures of so many operations: calls for each, by name."""
        each = {f"rpc {call}": count / operations for call, count in (await self.calls() - before).items()}
        return {"rpcs": sum(each.values()), **each}


async def find_metrics_port(pid: int) -> int:
    """Where the development server with this process id, which chose a free port, shows its counters.

    Raises:
        OSError: Nowhere, or this is no Linux.
    """
    for port in _listening_ports(pid):
        try:
            async with asyncio.timeout(2):
                page = await _page(port)
        except (OSError, TimeoutError):
            continue  # another protocol
        if "service_requests{" in page:
            return port
    raise OSError("Temporal shows no metrics")


def processor_seconds(pid: int) -> float:
    """Processor time of a process and its threads, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _listening_ports(pid: int) -> list[int]:
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(descriptor.readlink()))
        except FileNotFoundError:
            continue  # closed meanwhile
    rows = [row.split() for row in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [
        int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENING and f"socket:[{row[9]}]" in sockets
    ]


async def _page(port: int) -> str:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        return (await reader.read()).decode(errors="replace")
    finally:
        writer.close()
