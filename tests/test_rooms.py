"""The three rooms: who may import whom. What breaks these breaks the sandbox, the vendored kit, or the flow of data."""

from __future__ import annotations

import ast
import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KIT = ROOT / "workflows" / "kit"


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Every module that `path` imports; relative ones start with a dot."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("path", modules("workflows"), ids=lambda path: path.stem)
def test_workflow_code_imports_no_io_and_no_other_room(path: Path) -> None:
    forbidden = ("bridge", "activities", "aiohttp", "sqlite3", "socket", "temporalio.client", "temporalio.worker")
    assert not [name for name in imported(path) if within(name, *forbidden)]


@pytest.mark.parametrize("path", modules("activities"), ids=lambda path: path.stem)
def test_activities_know_nothing_of_the_bridge(path: Path) -> None:
    assert not [name for name in imported(path) if within(name, "bridge", "temporalio.client", "temporalio.worker")]


@pytest.mark.parametrize("path", sorted(KIT.glob("*.py")), ids=lambda path: path.stem)
def test_the_kit_stands_on_temporalio_and_pydantic_alone(path: Path) -> None:
    allowed = {*sys.stdlib_module_names, "temporalio", "pydantic"}
    names = [name for name in imported(path) if not name.startswith(".")]
    assert {name.split(".")[0] for name in names} <= allowed
    assert not [name for name in imported(path) if name.startswith("..")]


def test_the_kit_works_vendored_under_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(KIT, tmp_path / "acme_mcp", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    vendored = importlib.import_module("acme_mcp")
    assert vendored.Task.__module__ == "acme_mcp.task"
    for name in [name for name in sys.modules if within(name, "acme_mcp")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("module", "above"),
    [
        ("gateway", ("bridge.reader", "bridge.tasks", "bridge.calls", "bridge.server", "bridge.http")),
        ("status", ("bridge.gateway", "bridge.reader", "bridge.tasks", "bridge.http", "temporalio")),
        ("reader", ("bridge.tasks", "bridge.calls", "bridge.server", "bridge.http", "temporalio")),
        ("http", ("bridge.gateway", "bridge.reader", "bridge.tasks", "bridge.calls", "bridge.server", "temporalio")),
        ("stdio", ("bridge.gateway", "bridge.reader", "bridge.tasks", "bridge.calls", "bridge.server", "temporalio")),
        ("events", ("bridge.gateway", "bridge.reader", "bridge.tasks", "bridge.server", "mcp", "aiohttp")),
        ("history", ("bridge.gateway", "bridge.reader", "bridge.payloads", "temporalio", "mcp", "aiohttp")),
        ("histories", ("bridge.tasks", "bridge.calls", "bridge.server", "bridge.http", "temporalio", "mcp", "aiohttp")),
        (
            "features",
            ("bridge.gateway", "bridge.reader", "bridge.tasks", "bridge.calls", "bridge.server", "temporalio"),
        ),
        ("resources", ("bridge.gateway", "bridge.calls", "bridge.server", "bridge.http", "temporalio", "aiohttp")),
        ("follow", ("bridge.gateway", "bridge.reader", "bridge.watch", "bridge.listen", "bridge.http")),
        ("watch", ("bridge.gateway", "bridge.reader", "bridge.listen", "bridge.http", "temporalio")),
        ("wire", ("bridge.gateway", "bridge.reader", "temporalio", "mcp", "aiohttp")),
    ],
)
def test_data_flows_one_way_through_the_bridge(module: str, above: tuple[str, ...]) -> None:
    assert not [name for name in imported(ROOT / "bridge" / f"{module}.py") if within(name, *above)]
