"""The tasks module of the shipped tools: what `--tasks` names if nothing else is given."""

from __future__ import annotations

from activities import ACTIVITIES
from workflows import TASKS

__all__ = ["ACTIVITIES", "SHARED", "TASKS"]

SHARED = tuple(task.__module__ for task in TASKS)
"""Shown to be deterministic by tests/workflows_shipped, which run them in the full sandbox."""
