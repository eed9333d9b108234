"""`python -m tests.soak`: a thousand tasks at once, and then a steady stream of them (OP-05). On demand, not in CI.

It starts a Temporal dev server, a worker and a bridge, and the load beside them. A task costs them some 60 ms of
processor time together, so that two cores that have nothing else to do are just enough for twenty a second, and catch
up with the thousand afterwards; where there is less, Temporal is what gives in first, and `--burst` and `--rate` bring
the load down. The exit status is 1 if a demand of the case was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.cases.stack import UNLIMITED, Process, running_stack
from tests.soak.gauges import Sample, Trend, sample, trends
from tests.soak.load import Plan, Tally, drive

TOOLS: Final = "tests.soak.tools"
USERS: Final = 50
BURST_SECONDS: Final = 10.0
BURST_WORK_SECONDS: Final = 5.0
LISTENED: Final = 5
"""One task of so many of the burst has a LISTEN."""

WORK_SECONDS: Final = 1.0
"""What a task of the soak takes. A step with heartbeats, as short as a client at the default interval can still see."""

GET_P95_MS: Final = 500.0
SAMPLE_SECONDS: Final = 2.0
WARM_UP: Final = 0.25
"""Part of the soak, at most `WARM_UP_SECONDS`, before the first sample that counts as steady."""

WARM_UP_SECONDS: Final = 60.0
MARGIN_SECONDS: Final = 300.0
"""For starting, for the burst and for the ends, before it is given up."""


@dataclass(frozen=True)
class Outcome:
    """What was measured. `samples` are those of the soak."""

    burst: Tally
    soak: Tally
    samples: Sequence[Sample]
    trends: Sequence[Trend]


@dataclass(frozen=True)
class Demand:
    """A demand of the case, what came of it, and whether that will do."""

    what: str
    value: str
    met: bool


async def measure(tasks: int, minutes: float, rate: float, console: Console) -> Outcome:
    """Both parts, on a stack of their own. Raises TimeoutError when they take far longer than planned."""
    async with AsyncExitStack() as stack, asyncio.timeout(minutes * 60 + MARGIN_SECONDS):
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        temporal = await stack.enter_async_context(running_stack(folder, settings=UNLIMITED))
        worker, bridge = await temporal.worker(TOOLS), await temporal.bridge(TOOLS)
        burst, soak = Tally(), Tally()
        at_once = Plan(
            users=USERS, tasks=tasks, seconds=BURST_SECONDS, work=BURST_WORK_SECONDS, listens=tasks // LISTENED
        )
        await _watched("burst", drive(bridge.url, at_once, burst), burst, worker, bridge, console)
        seconds = minutes * 60
        plan = Plan(users=USERS, tasks=round(rate * seconds), seconds=seconds, work=WORK_SECONDS)
        samples = await _watched("soak", drive(bridge.url, plan, soak), soak, worker, bridge, console)
    during = [one for one in samples if one.seconds <= seconds]
    steady = [one for one in during if one.seconds >= min(WARM_UP * seconds, WARM_UP_SECONDS)]
    return Outcome(burst, soak, during, trends(steady))


async def _watched(
    name: str, work: Any, tally: Tally, worker: Process, bridge: Process, console: Console
) -> list[Sample]:
    """Do `work`, with a sample and from time to time a line beside it."""
    processes = {"bridge": bridge.process.pid, "worker": worker.process.pid}
    clock = asyncio.get_running_loop().time
    begin, samples = clock(), list[Sample]()
    working = asyncio.create_task(work)
    try:
        while not working.done():
            await asyncio.wait({working}, timeout=SAMPLE_SECONDS)
            now = sample(clock() - begin, processes)
            samples.append(now)
            if len(samples) % 5 == 1 or working.done():
                console.print(
                    f"{name} {now.seconds:4.0f} s: {tally.started} started, {tally.open} open, "
                    f"GET p95 {p95(tally.gets[-1000:]):.0f} ms, {sum(tally.errors.values())} errors, bridge "
                    f"{now.rss['bridge']:.0f} MiB {now.fds['bridge']} FDs, worker {now.rss['worker']:.0f} MiB "
                    f"{now.fds['worker']} FDs",
                    highlight=False,
                    soft_wrap=True,
                )
        await working
    finally:
        working.cancel()
        await asyncio.wait({working})
    return samples


def p95(times: Sequence[float]) -> float:
    """0 if there are not enough of them."""
    return statistics.quantiles(times, n=20)[-1] if len(times) > 1 else 0.0


def demands(outcome: Outcome) -> list[Demand]:
    """What OP-05 wants."""
    found = []
    for name, tally in (("burst", outcome.burst), ("soak", outcome.soak)):
        others = sum(tally.errors.values()) - tally.internal_errors
        found += [
            Demand(f"{name}: lost tasks", f"{tally.lost} of {tally.started}", tally.lost == 0),
            Demand(f"{name}: -32603", str(tally.internal_errors), tally.internal_errors == 0),
            Demand(f"{name}: other errors", str(others), others == 0),
            Demand(f"{name}: GET p95", f"{p95(tally.gets):.0f} ms", p95(tally.gets) < GET_P95_MS),
        ]
    found.append(Demand("burst: listeners not told the end", str(outcome.burst.not_told), outcome.burst.not_told == 0))
    for trend in outcome.trends:
        what = f"soak: {trend.gauge.upper()} of the {trend.process}"
        found.append(Demand(what, f"{trend.first:.0f} to {trend.last:.0f}", trend.flat))
    return found


def show(outcome: Outcome, verdict: Sequence[Demand], console: Console) -> None:
    """The tables."""
    over_time = Table(title="Soak: memory and open files", title_justify="left")
    for heading in ("s", "bridge MiB", "bridge FDs", "worker MiB", "worker FDs"):
        over_time.add_column(heading, justify="right")
    step = max(1, len(outcome.samples) // 10)
    for one in outcome.samples[::step]:
        cells = [f"{one.rss['bridge']:.0f}", f"{one.fds['bridge']}", f"{one.rss['worker']:.0f}", f"{one.fds['worker']}"]
        over_time.add_row(f"{one.seconds:.0f}", *cells)
    table = Table(title="A thousand tasks (OP-05)", title_justify="left")
    for heading in ("demand", "measured", ""):
        table.add_column(heading)
    for demand in verdict:
        table.add_row(demand.what, demand.value, "[green]met[/green]" if demand.met else "[red]missed[/red]")
    console.print(over_time)
    console.print(table)
    for name, tally in (("burst", outcome.burst), ("soak", outcome.soak)):
        for (code, message), count in tally.errors.items():
            console.print(f"{name}: {count} times {code} {message}", highlight=False, soft_wrap=True)


def report(outcome: Outcome, verdict: Sequence[Demand]) -> dict[str, Any]:
    """The same for machines."""
    tallies = {
        name: {
            "started": tally.started,
            "completed": tally.completed,
            "lost": tally.lost,
            "listened": tally.listened,
            "errors": {f"{code} {message}": count for (code, message), count in tally.errors.items()},
            "callP95Ms": p95(tally.calls),
            "getP95Ms": p95(tally.gets),
            "gets": len(tally.gets),
        }
        for name, tally in (("burst", outcome.burst), ("soak", outcome.soak))
    }
    samples = [asdict(one) for one in outcome.samples]
    return tallies | {"samples": samples, "demands": [asdict(demand) for demand in verdict]}


def main() -> None:
    """Parse the options, measure, print, exit."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--burst", type=int, default=1000, help="tasks started in the first 10 s (default 1000)")
    parser.add_argument("--minutes", type=float, default=10, help="how long the steady part takes (default 10)")
    parser.add_argument("--rate", type=float, default=20, help="tasks a second in it (default 20)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    if options.minutes <= 0 or options.rate <= 0 or options.burst < USERS:
        parser.error(f"--minutes and --rate must be above 0, --burst at least {USERS}")
    console = Console(stderr=True)
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    console.print(f"{os.cpu_count()} cores, load average before {load}", highlight=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended then, too
    try:
        outcome = asyncio.run(measure(options.burst, options.minutes, options.rate, console))
    except KeyboardInterrupt:
        console.print("Interrupted; what was started has ended.")
        sys.exit(130)
    except TimeoutError:
        console.print("[red]It took far too long: the machine is too busy, or something hangs.[/red]")
        sys.exit(1)
    verdict = demands(outcome)
    if options.json:
        sys.stdout.write(json.dumps(report(outcome, verdict), indent=2) + "\n")
    else:
        show(outcome, verdict, Console())
    sys.exit(not all(demand.met for demand in verdict))


if __name__ == "__main__":
    main()
