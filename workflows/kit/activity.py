"""What activities of a tool need from the kit: progress that costs no history event.

Heartbeat details of a running activity are readable by `describe`, so a poller sees them although nothing was written
to history; Temporal throttles heartbeats to 80 % of the heartbeat timeout.
"""

from __future__ import annotations

from temporalio import activity

from .contract import progress_report


def report_progress(progress: float, *, total: float | None = None, message: str | None = None) -> None:
    """Heartbeat, saying how far this activity is; `progress` should grow with each call."""
    report = progress_report(progress, total, message)
    if report is None:
        activity.heartbeat()
    else:
        activity.heartbeat(report.to_json())
