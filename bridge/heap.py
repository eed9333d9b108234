"""Garbage collection of a process that serves for long.

What is there once it listens stays to its end, and what a request leaves is freed by reference counts, but for few
cycles. With Python's defaults the collector walks through all of it again after every few dozen requests, at a sixth of
the time of a read from memory (docs/performance.md).
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (20_000, 20, 20)
"""Python's own are (700, 10, 10): containers that were made and not freed, then collections of the generation below."""


def settle() -> None:
    """Leave what is there out of every collection from now on, and collect the rest less often. For a whole process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
