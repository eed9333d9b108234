"""A catalog file that changes while its tools are offered: taken as a whole, once it holds still, or not at all."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge import reload, seal
from bridge.catalog import Catalog
from bridge.catalog_file import ReadText, read_catalog
from bridge.reload import CatalogFiles
from bridge.seal import Seal, Unsealed
from bridge.service import offered
from bridge.settings import BridgeSettings
from tests.support import eventually
from workflows.kit.contract import Principal

OWNER = Principal(issuer="local", subject="local")


def tool(name: str, *lines: str) -> str:
    schema = "" if any("input_schema" in line for line in lines) else 'input_schema = { type = "object" }'
    told = "" if any("description" in line for line in lines) else 'description = "Works."'
    return "\n".join((f"[tools.{name}]", 'workflow = "Work"', 'queue = "q"', told, schema, *lines, ""))


class Followed:
    """A catalog that is followed, and what was adopted of it."""

    def __init__(self, folder: Path, text: str, catalog_from: Callable[[ReadText], Catalog] | None = None) -> None:
        self.file = folder / "tools.toml"
        self.file.write_text(text, "utf-8")
        self.files = CatalogFiles(catalog_from or (lambda read: Catalog(read_catalog(self.file, read))))
        self.catalog = self.files.read()
        self.adopted: list[list[str]] = []

    def adopt(self, read: Catalog) -> None:
        self.catalog.adopt(read)
        self.adopted.append(self.names)

    @property
    def names(self) -> list[str]:
        """The tools that are offered."""
        return [tool.name for tool in self.catalog]

    async def offers(self, *names: str) -> None:
        """Wait until they are the tools that are offered."""

        async def offered() -> bool:
            return self.names == list(names)

        await eventually(offered, what=f"the tools {names}")

    def replace(self, text: str) -> None:
        """Put another file in its place, as most editors do."""
        new = self.file.with_suffix(".new")
        new.write_text(text, "utf-8")
        new.replace(self.file)


@asynccontextmanager
async def followed(
    folder: Path, text: str, catalog_from: Callable[[ReadText], Catalog] | None = None
) -> AsyncIterator[Followed]:
    catalog = Followed(folder, text, catalog_from)
    async with catalog.files.followed(catalog.adopt):
        yield catalog


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "LOOK_SECONDS", 0.02)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def logged(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    async def complained() -> bool:
        return len(errors(caplog)) >= count

    await eventually(complained, what=f"{count} errors")
    return errors(caplog)


async def test_a_file_that_is_written_anew_or_replaced_is_what_is_offered_in_its_order(tmp_path: Path) -> None:
    async with followed(tmp_path, tool("a")) as catalog:
        catalog.file.write_text(tool("b") + tool("a"), "utf-8")
        await catalog.offers("b", "a")
        catalog.replace(tool("c"))
        await catalog.offers("c")
    assert catalog.adopted == [["b", "a"], ["c"]]


async def test_a_file_of_the_same_size_and_time_is_another_one(tmp_path: Path) -> None:
    async with followed(tmp_path, tool("a")) as catalog:
        before = catalog.file.stat()
        catalog.file.write_text(tool("b"), "utf-8")
        os.utime(catalog.file, ns=(before.st_atime_ns, before.st_mtime_ns))
        await catalog.offers("b")


async def test_a_schema_file_that_changes_changes_its_tool(tmp_path: Path) -> None:
    schema = tmp_path / "in.json"
    schema.write_text('{"type": "object"}', "utf-8")
    async with followed(tmp_path, tool("a", 'input_schema_file = "in.json"')) as catalog:
        schema.write_text('{"type": "object", "required": ["month"]}', "utf-8")

        async def needed() -> bool:
            return (catalog.catalog.input_schema("a") or {}).get("required") == ["month"]

        await eventually(needed, what="the new schema")


async def test_a_file_that_vanishes_for_a_moment_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reload, "STILL_SECONDS", 3.0)
    async with followed(tmp_path, tool("a")) as catalog:
        catalog.file.unlink()
        await asyncio.sleep(0.3)
        catalog.file.write_text(tool("b"), "utf-8")
        await catalog.offers("b")
    assert errors(caplog) == []


async def test_half_a_file_is_not_offered_though_it_could_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "STILL_SECONDS", 3.0)
    async with followed(tmp_path, tool("a")) as catalog:
        catalog.file.write_text(tool("b"), "utf-8")
        await asyncio.sleep(0.3)
        catalog.file.write_text(tool("b") + tool("c"), "utf-8")
        await catalog.offers("b", "c")
    assert catalog.adopted == [["b", "c"]]


async def test_what_cannot_be_used_changes_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reads = list[ReadText]()

    def catalog_from(read: ReadText) -> Catalog:
        reads.append(read)
        return Catalog(read_catalog(tmp_path / "tools.toml", read))

    async with followed(tmp_path, tool("a"), catalog_from) as catalog:
        catalog.replace(tool("a") + tool("b", "lifetme = 1"))
        (line,) = await logged(caplog, 1)
        assert line == (
            f"catalog.unusable: catalog {catalog.file}: tool b: lifetme is no key; is lifetime meant?; "
            "the tools offered before stay"
        )
        before = len(reads)
        catalog.replace(tool("a") + tool("b", "lifetme = 1") + "# saved again")

        async def read_again() -> bool:
            return len(reads) > before

        await eventually(read_again, what="the file that was saved again")
        await asyncio.sleep(2 * reload.STILL_SECONDS)  # by when it would have been told
        catalog.file.unlink()
        missing = (await logged(caplog, 2))[1]
        assert "cannot be read: No such file or directory" in missing
        assert catalog.names == ["a"]
        catalog.file.write_text(tool("a") + tool("b"), "utf-8")
        await catalog.offers("a", "b")
    assert len(errors(caplog)) == 2


async def test_the_same_problem_is_told_again_only_after_it_was_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with followed(tmp_path, tool("a")) as catalog:
        for count, good in enumerate(("b", "c"), 1):
            catalog.replace("no toml")
            await logged(caplog, count)
            catalog.replace("no toml")
            catalog.replace(tool(good))
            await catalog.offers(good)
    assert len(errors(caplog)) == 2


async def test_a_schema_file_that_is_put_right_is_enough(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with followed(tmp_path, tool("a")) as catalog:
        catalog.replace(tool("b", 'input_schema_file = "in.json"'))
        assert "input_schema_file" in (await logged(caplog, 1))[0]
        (tmp_path / "in.json").write_text('{"type": "object"}', "utf-8")
        await catalog.offers("b")


async def test_a_name_that_the_tasks_module_has_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tools.toml"
    settings = BridgeSettings.load(single_replica=True, catalog=file, tasks="bridge.shipped")
    async with followed(tmp_path, tool("a"), lambda read: offered(settings, read)) as catalog:
        catalog.replace(tool("a") + tool("deploy_release"))
        assert "tool deploy_release: declared twice" in (await logged(caplog, 1))[0]
        assert catalog.names[-1] == "a"


async def test_a_fault_that_a_file_brings_to_light_does_not_end_the_watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def catalog_from(read: ReadText) -> Catalog:
        if "wrong" in read(tmp_path / "tools.toml"):
            raise RuntimeError("a fault")
        return Catalog(read_catalog(tmp_path / "tools.toml", read))

    async with followed(tmp_path, tool("a"), catalog_from) as catalog:
        catalog.replace("wrong")
        await logged(caplog, 2)
        catalog.replace(tool("b"))
        await catalog.offers("b")


async def test_the_event_loop_is_free_while_a_catalog_is_read(tmp_path: Path) -> None:
    readers = list[threading.Thread]()

    def catalog_from(read: ReadText) -> Catalog:
        readers.append(threading.current_thread())
        return Catalog(read_catalog(tmp_path / "tools.toml", read))

    async with followed(tmp_path, tool("a"), catalog_from) as catalog:
        catalog.replace(tool("b"))
        await catalog.offers("b")
    assert readers[0] is threading.main_thread() and threading.main_thread() not in readers[1:]


async def test_nothing_is_looked_at_any_more_when_the_service_has_ended(tmp_path: Path) -> None:
    async with followed(tmp_path, tool("a")) as catalog:
        before = asyncio.all_tasks()
    assert {task.get_name() for task in before - asyncio.all_tasks()} == {"catalog"}
    assert catalog.adopted == []


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (tool("a"), tool("a") + "# a remark", False),
        (tool("a"), tool("a", 'answer_window = "1h"', 'lifetime = "2h"'), False),
        (tool("a"), tool("a", 'description = "Other."'), True),
        (tool("a") + tool("b"), tool("b") + tool("a"), True),
        (
            tool("a", 'input_schema = { type = "object", properties = { n = { const = 1 } } }'),
            tool("a", 'input_schema = { type = "object", properties = { n = { const = true } } }'),
            True,
        ),
    ],
    ids=["remark", "policy", "description", "order", "1 and true"],
)
def test_a_change_is_one_if_the_list_shows_it(tmp_path: Path, before: str, after: str, shown: bool) -> None:
    file = tmp_path / "tools.toml"
    file.write_text(before, "utf-8")
    catalog = Catalog(read_catalog(file))
    file.write_text(after, "utf-8")
    assert catalog.adopt(Catalog(read_catalog(file))) is shown
    assert catalog.adopt(Catalog(read_catalog(file))) is False


def test_who_began_with_a_tool_keeps_it_and_its_name_is_gone_for_others(tmp_path: Path) -> None:
    file = tmp_path / "tools.toml"
    file.write_text(tool("a", 'declared_errors = ["Closed"]'), "utf-8")
    catalog = Catalog(read_catalog(file))
    begun, rules = catalog.get("a"), catalog.outcome_rules
    assert begun is not None and rules("a").declared_errors == {"Closed"}
    file.write_text(tool("b"), "utf-8")
    catalog.adopt(Catalog(read_catalog(file)))
    assert begun.name == "a" and catalog.get("a") is None and catalog.input_schema("a") is None
    assert not rules("a").declared_errors
    assert [shown["name"] for shown in catalog.page(None)[0]] == ["b"]


def test_a_seal_lives_longer_from_then_on_and_never_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(seal, "time", SimpleNamespace(time=lambda: now))
    questions = Seal(["k" * 32], "question", timedelta(seconds=10))
    short = questions.seal({"key": "a"}, OWNER)
    questions.lengthen(timedelta(seconds=100))
    questions.lengthen(timedelta(seconds=50))
    long = questions.seal({"key": "a"}, OWNER)
    now += 99
    assert questions.open(long, OWNER) == {"key": "a"}
    with pytest.raises(Unsealed):
        questions.open(short, OWNER)
