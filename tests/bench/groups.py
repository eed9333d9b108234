"""What is measured, by the name that `--only` takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from tests.bench.cost import costs
from tests.bench.growth import growth
from tests.bench.latency import notifications
from tests.bench.measure import Outcome
from tests.bench.reads import get_crowd, get_many, get_one
from tests.bench.replicas import create_replicas, get_replicas
from tests.bench.world import World
from tests.bench.writes import create_many, create_one, cycles, update_one

GROUPS: Final[dict[str, Callable[[World], Awaitable[Outcome]]]] = {
    "get-1": get_one,
    "get-32": get_many,
    "get-200": get_crowd,
    "get-replicas": get_replicas,
    "notify": notifications,
    "cost": costs,
    "update-1": update_one,
    "cycle-8": cycles,
    "create-1": create_one,
    "create-16": create_many,
    "create-replicas": create_replicas,
    "growth": growth,
}
"""In this order: what creating leaves parked would be in the way of the others, and growth has its own Temporals."""

NOT_QUICK: Final = frozenset({"get-200"})
"""Left out of the quick run, unless it is asked for."""
