"""What the demonstration prints: who does what, one line each. Colours only on a terminal."""

from __future__ import annotations

import json
from typing import Any, Final

from rich.console import Console
from rich.text import Text

_STYLES: Final = {"client": "cyan", "task": "green", "person": "magenta", "operator": "yellow", "result": "bold green"}
_WIDTH: Final = 10
_LONGEST: Final = 300


class Transcript:
    """Prints to standard output."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)

    def heading(self, text: str) -> None:
        """A new scene."""
        self._console.print(Text(f"\n{text}\n{'─' * len(text)}", style="bold"))

    def note(self, text: str) -> None:
        """An explanation."""
        self._console.print(Text(text, style="dim"))

    def line(self, who: str, text: str) -> None:
        """What `who` does or says; further lines of the text are indented."""
        first, *more = text.splitlines()
        self._console.print(Text.assemble((f"{who:>{_WIDTH}}  ", _STYLES[who]), first))
        for line in more:
            self._console.print(Text(" " * (_WIDTH + 2) + line))


def shown(value: Any) -> str:
    """A JSON value on one line, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
