"""Log lines on standard error: time, level, logger, event, then the event's fields as `key=json`.

Fields are JSON, so that nothing a client sends can start a line of its own.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Final

from .settings import LogLevel

_STANDARD: Final = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}
_NOISY: Final = ("aiohttp.access", "asyncio", "mcp", "temporalio.worker")
"""Loggers whose information is about themselves; their warnings stay."""


class EventFormatter(logging.Formatter):
    """One line an event, plus the traceback if there is one."""

    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # the base class's name
        line = super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")
        fields = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        return " ".join([line, *(f"{name}={json.dumps(value, default=str)}" for name, value in fields.items())])


def set_up_logging(level: LogLevel) -> None:
    """Send this process's log to standard error, from `level` up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EventFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
