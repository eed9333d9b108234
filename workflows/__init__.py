"""Deterministic code: the author's kit and the tools that are shipped. `TASKS` is what a worker runs and a bridge
serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .crawl_site import CrawlSite
from .deploy_release import DeployRelease
from .kit import Task
from .migrate_records import MigrateRecords

TASKS: Final[Sequence[type[Task[Any, Any]]]] = (MigrateRecords, DeployRelease, CrawlSite)
