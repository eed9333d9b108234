"""Ends of a process. SIGTERM and SIGINT ask for an orderly end; a SIGINT after that ends at once.

A second SIGTERM changes nothing: supervisors and wrappers pass it on more than once, and who wants more has SIGKILL. A
second SIGINT is a person at a terminal who will not wait.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn


@asynccontextmanager
async def stop_signals(
    at_once: Callable[[], None] = lambda: None, *, within: float | None = None
) -> AsyncIterator[asyncio.Event]:
    """An event that the first signal sets. A SIGINT after that calls `at_once` and exits, without waiting for anything;
    so does the process by itself if it has not ended `within` seconds of the first, whatever holds it up.
    """
    stop = asyncio.Event()

    def overdue() -> None:
        at_once()
        os._exit(1)

    def received(number: signal.Signals) -> None:
        if stop.is_set():
            if number is signal.SIGINT:
                at_once()
                os._exit(128 + number)
            return
        stop.set()
        if within is not None:
            # A thread: what holds the process up may be the event loop itself
            patience = threading.Timer(within, overdue)
            patience.daemon = True
            patience.start()

    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, received, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def leave(status: int) -> NoReturn:
    """End the process with everything printed, but without the interpreter's own shutdown.

    Temporal's runtime has threads that may be waiting for the interpreter just then: it was seen to hang or to abort.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # as it is when the process was started with that descriptor closed
            stream.flush()
    os._exit(status)
