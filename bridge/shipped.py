"""The tasks module of the shipped tools: what `--tasks` names if nothing else is given."""

from __future__ import annotations

from activities import ACTIVITIES
from workflows import TASKS

__all__ = ["ACTIVITIES", "TASKS"]
