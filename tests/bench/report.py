"""What was found, as tables for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.bench.measure import Outcome, Sample

WIDTH: Final = 150
"""Of tables that no terminal bounds."""

_HIDDEN: Final = frozenset({"operations"})
_HEADINGS: Final = {"p50": "p50 ms", "p95": "p95 ms", "rate": "per second", "rpcs": "calls", "actions": "actions"}
_CALLS: Final = "rpc "
_PROCESSOR: Final = "cpu "


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything, by group."""
    return {outcome.title: asdict(outcome) for outcome in outcomes}


def show(outcomes: Sequence[Outcome], console: Console) -> None:
    """A table of figures for each group, then all bars."""
    for outcome in outcomes:
        console.print(_figures(outcome))
        for note in outcome.notes:
            console.print(f"  {note}")
        console.print()
    if any(outcome.verdicts for outcome in outcomes):
        console.print(_bars(outcomes))


def _figures(outcome: Outcome) -> Table:
    names = dict.fromkeys(name for row in outcome.rows.values() for name in row if name not in _HIDDEN)
    plain = [name for name in names if not name.startswith((_CALLS, _PROCESSOR))]
    spread = [prefix for prefix in (_CALLS, _PROCESSOR) if any(name.startswith(prefix) for name in names)]
    table = Table(title=outcome.title, title_justify="left", title_style="bold")
    table.add_column("median of the turns" if "p50" in names else "")
    for name in plain:
        table.add_column(_HEADINGS.get(name, name), justify="right")
    for prefix in spread:
        table.add_column("of these" if prefix == _CALLS else "processor ms")
    for work, row in outcome.rows.items():
        cells = [_number(row[name]) if name in row else "" for name in plain]
        table.add_row(work, *cells, *(_parts(row, prefix) for prefix in spread))
    return table


def _parts(row: Sample, prefix: str) -> str:
    """The figures of one kind, largest first; those that round to nothing are left out."""
    parts = sorted(((figure, name) for name, figure in row.items() if name.startswith(prefix)), reverse=True)
    return ", ".join(f"{name.removeprefix(prefix)} {figure:.2f}" for figure, name in parts if figure >= 0.005)


def _number(figure: float) -> str:
    return f"{figure:.0f}" if abs(figure) >= 100 else f"{figure:.2f}"


def _bars(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="Bars", title_justify="left", title_style="bold")
    for heading in ("work", "", "bar", "is", "of any turn", ""):
        table.add_column(heading)
    for outcome in outcomes:
        for verdict in outcome.verdicts:
            spread = "" if verdict.low is None else f"{verdict.low:.2f} to {verdict.high:.2f}"
            table.add_row(
                f"{outcome.title}: {verdict.work}",
                verdict.figure,
                verdict.bar,
                f"{verdict.value:.2f}",
                spread,
                "[green]met[/green]" if verdict.met else "[red]missed[/red]",
            )
    return table
