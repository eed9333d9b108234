"""What the shipped tools do to the world, run by workers. `ACTIVITIES` is everything a worker registers for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from . import crawl_site, deploy_release, migrate_records

ACTIVITIES: Final[Sequence[Callable[..., Any]]] = (
    migrate_records.survey_migration,
    migrate_records.move_records,
    migrate_records.settle_records,
    migrate_records.tally_migration,
    deploy_release.plan_deployment,
    deploy_release.switch_release,
    deploy_release.check_health,
    deploy_release.roll_back_release,
    crawl_site.open_crawl,
    crawl_site.visit_pages,
)
