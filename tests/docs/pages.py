"""The documentation as data: its pages, their code blocks, and the tools that they show, as modules."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.support import ROOT

DOCS: Final = ROOT / "docs"
PAGES: Final = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
TUTORIAL: Final = DOCS / "tutorial" / "write-your-own-tool.md"
TESTING: Final = DOCS / "how-to" / "test-a-tool.md"

_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """A page's path in the repository, for test ids and messages."""
    return page.relative_to(ROOT).as_posix()


def text_of(page: str) -> str:
    """The text of a page, given by its path below `docs`."""
    return (DOCS / page).read_text("utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """The page's code blocks in one language, in order."""
    return [code for kind, code in _BLOCK.findall(page.read_text("utf-8")) if kind == language]


def unwinding_tool() -> str:
    """The tutorial's last step, put together as the page tells its reader to."""
    first, second = blocks(TUTORIAL, "python")
    kept, found, _ = first.partition("@activity.defn")
    assert found
    told = kept.replace("import Form, Task, tool", "import Form, Task, ToolError, tool")
    assert told != kept
    return f"import asyncio\n{told}{second}"


@contextmanager
def imported(name: str, code: str, folder: Path) -> Iterator[ModuleType]:
    """`code` saved as `name`.py in `folder` and imported, as a reader of the page does; forgotten afterwards."""
    (folder / f"{name}.py").write_text(code, "utf-8")
    sys.path.insert(0, str(folder))
    try:
        yield import_module(name)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(name, None)
