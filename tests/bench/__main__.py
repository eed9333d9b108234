"""`python -m tests.bench`: ours, the peer and a bare Temporal client, in turns within one run.

The machine may be busy, so figures mean something only side by side: contenders alternate, a figure is the median of
their turns, and a bar is a ratio. Nothing here is a test: the exit status says whether it could be measured, not how it
went.
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
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from bridge.child import start_child, stop_child
from bridge.dev_server import NAMESPACE
from tests.bench.groups import BARE_QUEUE, GROUPS, Figure, Group, Sample, World
from tests.bench.peer import PeerMissing, running_peer
from tests.cases.stack import running_stack

TURNS: Final = 5
WARM_UP: Final = 0.5
"""Part of a turn that each contender works before the first that counts."""

SETTLE_SECONDS: Final = 0.5
"""Between turns, so that what one contender left to do is not the next one's burden."""

QUICK_TURNS: Final = 3
QUICK_SECONDS: Final = 0.5
"""Part of a turn's length."""

LIMIT_SECONDS: Final = 680.0
QUICK_LIMIT_SECONDS: Final = 160.0

Results = dict[str, list[Sample]]


async def _measure(names: Sequence[str], *, quick: bool, console: Console) -> list[tuple[Group, Results]]:
    async with AsyncExitStack() as stack:
        peer: str | None = None
        try:
            peer = await stack.enter_async_context(running_peer(console))
        except PeerMissing as missing:
            console.print(f"[yellow]Without the peer: {missing}[/yellow]")
        async with asyncio.timeout(QUICK_LIMIT_SECONDS if quick else LIMIT_SECONDS):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            temporal = await stack.enter_async_context(running_stack(folder / "counter"))
            await temporal.worker("tests.bench.tools")
            bridge = await temporal.bridge("tests.bench.tools")
            await _bare_worker(stack, temporal.environment)
            client = await Client.connect(
                temporal.temporal.address, namespace=NAMESPACE, data_converter=pydantic_data_converter
            )
            measured = []
            for number, name in enumerate(names, 1):
                async with AsyncExitStack() as sessions:
                    group = await GROUPS[name](World(bridge.url, peer, client, sessions))
                    results = await _turns(group, f"{number}/{len(names)}", quick=quick, console=console)
                    measured.append((group, results))
            return measured


async def _bare_worker(stack: AsyncExitStack, environment: Mapping[str, str]) -> None:
    worker = await start_child(
        [sys.executable, "-m", "tests.bench.bare_worker", BARE_QUEUE],
        environment=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    stack.push_async_callback(stop_child, worker, ask=signal.SIGTERM, patience=5)
    if worker.stdout is not None:
        await worker.stdout.readline()


async def _turns(group: Group, number: str, *, quick: bool, console: Console) -> Results:
    turns = QUICK_TURNS if quick else TURNS
    seconds = group.seconds * (QUICK_SECONDS if quick else 1)
    results: Results = {contender.name: [] for contender in group.contenders}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[now]}"))
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(f"{number} {group.title}", total=(turns + 1) * len(group.contenders), now="")
        for turn in range(turns + 1):
            for contender in group.contenders:
                progress.update(bar, now=f"turn {turn}: {contender.name}" if turn else f"warming up {contender.name}")
                sample = await contender.turn(seconds if turn else seconds * WARM_UP)
                if turn:
                    results[contender.name].append(sample)
                progress.advance(bar)
                await asyncio.sleep(SETTLE_SECONDS)
        progress.update(bar, now="")
    return results


def _medians(samples: Sequence[Sample]) -> Sample:
    return {figure: statistics.median(sample[figure] for sample in samples) for figure in samples[0]}


def _ratios(results: Results, of: str, figure: Figure, against: str) -> tuple[float, float, float]:
    """Of the medians, and the smallest and largest of any turn."""
    each = [mine[figure] / theirs[figure] for mine, theirs in zip(results[of], results[against], strict=True)]
    return _medians(results[of])[figure] / _medians(results[against])[figure], min(each), max(each)


def _bars(group: Group, results: Results) -> list[dict[str, Any]]:
    bars = []
    for bar in group.bars:
        if bar.against in results:
            ratio, low, high = _ratios(results, bar.of, bar.figure, bar.against)
            limit = f"{'>=' if bar.figure == 'rate' else '<='} {bar.factor:g} x {bar.against}"
            bars.append(
                {"of": bar.of, "figure": bar.figure, "bar": limit, "ratio": ratio, "low": low, "high": high}
                | {"met": bar.met(ratio)}
            )
    return bars


def _report(measured: Sequence[tuple[Group, Results]]) -> dict[str, Any]:
    return {
        group.title: {
            "medians": {name: _medians(samples) for name, samples in results.items()},
            "bars": _bars(group, results),
        }
        for group, results in measured
    }


def _show(report: Mapping[str, Any], console: Console) -> None:
    table = Table(title="Medians of the turns", title_justify="left")
    table.add_column("")
    for heading in ("p50 ms", "p95 ms", "per second"):
        table.add_column(heading, justify="right")
    bars = Table(title="Bars", title_justify="left")
    for heading in ("work", "bar", "ratio", "of any turn", ""):
        bars.add_column(heading)
    for title, figures in report.items():
        table.add_section()
        table.add_row(f"[bold]{title}[/bold]")
        for name, medians in figures["medians"].items():
            cells = [
                f"{medians[f]:.{2 if f != 'rate' else 0}f}" if f in medians else "" for f in ("p50", "p95", "rate")
            ]
            table.add_row(f"  {name}", *cells)
        for bar in figures["bars"]:
            verdict = "[green]met[/green]" if bar["met"] else "[red]missed[/red]"
            spread = f"{bar['low']:.2f} to {bar['high']:.2f}"
            bars.add_row(f"{title}: {bar['of']}", bar["bar"], f"{bar['ratio']:.2f}", spread, verdict)
    console.print(table)
    if bars.rows:
        console.print(bars)


def _cell(medians: Mapping[str, float], figure: Figure) -> str:
    if figure not in medians:
        return ""
    return f"{medians[figure]:.{1 if figure == 'rate' else 2}f}"


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Measures what docs/performance.md reports."
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter turns, under three minutes")
    parser.add_argument("--only", action="append", choices=GROUPS, help="measure this group alone; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    console = Console(stderr=True)
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    console.print(f"{os.cpu_count()} cores, load average before {load}")
    try:
        measured = asyncio.run(_measure(options.only or list(GROUPS), quick=options.quick, console=console))
    except TimeoutError:
        console.print("[red]It took too long: the machine is too busy to measure anything.[/red]")
        sys.exit(1)
    report = _report(measured)
    if options.json:
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        _show(report, Console())


if __name__ == "__main__":
    main()
