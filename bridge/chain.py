"""The first close decides: a run made by resetting a closed task is not the task.

A task is one run, or a chain of runs: continue-as-new, a retry, and a reset of a *running* run (the server terminates
that run in the same step, as `history-resetter`) go on with it. A reset of a closed run makes a new run under the
same id, which describe then shows as the latest; nothing in it says that the old one had closed, so the chain is
walked from its first run. A task that is one run, which is nearly every task, is known to be the first of its chain
and costs nothing; for others the walk is remembered, and a new run of a known chain costs one history read.

A run that retention has deleted hides what follows it; then the latest run counts.
"""

from __future__ import annotations

from typing import Final

from cachetools import LRUCache

from bridge.describe import Described
from bridge.errors import TaskNotFound
from bridge.gateway import Gateway

MAX_CHAINS: Final = 10_000
MAX_STEPS: Final = 32
"""Runs looked at in one read; a longer chain is finished by the next reads, and its latest run counts meanwhile."""


class Chains:
    """Remembers per task up to which run no close has decided."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._known: LRUCache[str, str] = LRUCache(MAX_CHAINS)

    async def deciding(self, latest: Described) -> Described:
        """The run that speaks for the task: `latest`, or the closed run of the chain that ended it before.

        Raises:
            EngineUnavailable, EngineRefused
        """
        if latest.first_of_chain or self._known.get(latest.task_id) == latest.run_id:
            return latest
        run_id = self._known.get(latest.task_id, latest.first_run_id)
        for _ in range(MAX_STEPS):
            if run_id == latest.run_id:
                break
            try:
                closed = await self._gateway.close_event(latest.task_id, run_id)
                run = (
                    await self._gateway.describe(latest.task_id, run_id) if closed and not closed.next_run_id else None
                )
            except TaskNotFound:
                run_id = latest.run_id
                break
            if closed is None:
                return latest  # the walk overtook `latest`: it closed after it was described
            if run is None:
                following = closed.next_run_id
            elif not closed.by_reset:
                return run
            else:
                # Empty if an earlier run of the chain was reset while this one ran; what it led to is not to be found.
                following = run.reset_run_id or latest.run_id
            self._known[latest.task_id] = run_id
            run_id = following
        self._known[latest.task_id] = run_id
        return latest
