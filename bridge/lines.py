"""Newline-delimited messages over two file descriptors that are used by nothing else in the process.

Threads do the blocking reads and writes, because no event loop can wait for a regular file, and because making a shared
pipe or terminal non-blocking would change it for its other users, too. Neither side is buffered without limit: the
reading thread is at most `READ_AHEAD` chunks ahead, and whoever writes goes on once the line has left.

What the process prints goes to standard error from `claim_channel` on, whoever prints it: our code, a tool's module, a
library, a child process.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import queue
import select
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from bridge.settings import OperatorError

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 64 * 1024
READ_AHEAD: Final = 16
"""Chunks that may wait for the event loop."""


@dataclass(frozen=True, slots=True)
class Channel:
    """The descriptors of what were standard input and output."""

    input: int
    output: int


def claim_channel() -> Channel:
    """Take standard input and output away from everything else: input is empty from now on, output goes to standard
    error. The descriptors are not inherited by child processes.

    Raises:
        OperatorError: One of the three standard streams is closed.
    """
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:  # how Python tells that it was started so
        raise OperatorError("standard input, output and error must be open")
    sys.stdout.flush()
    channel = Channel(os.dup(0), os.dup(1))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # at once, and not when a buffer for descriptor 1 is full
    return channel


class Splitter:
    """Cuts a stream of bytes into lines at `\\n` and nothing else; blank lines are left out."""

    def __init__(self, limit: int) -> None:
        """A line of more than `limit` bytes is given as None, and its bytes are not kept."""
        self._limit = limit
        self._line = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """The lines that end in `chunk`."""
        for number, piece in enumerate(chunk.split(b"\n")):
            if number:
                yield from self.end()
            if self._skipping:
                continue
            self._line += piece
            if len(self._line) > self._limit:
                self._line.clear()
                self._skipping = True
                yield None

    def end(self) -> Iterator[bytes]:
        """The line that the end of the stream ends, too."""
        if self._line and not self._line.isspace():
            yield bytes(self._line)
        self._line.clear()
        self._skipping = False


async def lines(descriptor: int, limit: int) -> AsyncGenerator[bytes | None]:
    """The lines that can be read from `descriptor`, until its end; None for one of more than `limit` bytes."""
    splitter, chunks = Splitter(limit), _Chunks(descriptor)
    while chunk := await chunks.next():
        for line in splitter.feed(chunk):
            yield line
    for line in splitter.end():
        yield line


class _Chunks:
    """What a thread of its own reads from a descriptor. The thread lives until the end of the input or the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._read_ahead = asyncio.Queue[bytes]()
        self._room = threading.Semaphore(READ_AHEAD)
        threading.Thread(target=self._read, name="lines-reader", daemon=True).start()

    async def next(self) -> bytes:
        """The next bytes; none at the end. Not to be called again after that."""
        chunk = await self._read_ahead.get()
        self._room.release()
        return chunk

    def _read(self) -> None:
        while True:
            self._room.acquire()
            chunk = _read_some(self._descriptor)
            try:
                self._loop.call_soon_threadsafe(self._read_ahead.put_nowait, chunk)
            except RuntimeError:  # the loop is closed: nobody is left to read for
                return
            if not chunk:
                return


class Writer:
    """Writes whole lines to a descriptor, in the order in which they were given."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._batches = queue.SimpleQueue[bytes | None]()
        self._leaving: list[asyncio.Future[None]] = []
        self.broken = asyncio.Event()
        """Set when nothing can be written any more, because the reader has gone."""
        threading.Thread(target=self._write, name="lines-writer", daemon=True).start()

    async def write(self, line: bytes) -> None:
        """Write `line` and a line end; returns when the system has taken them. Cancelled before the thread has taken
        the line, it is not written.

        Raises ConnectionError: Nobody reads any more.
        """
        if self.broken.is_set():
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        written: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((line, written))
        self._hand_over()
        await written

    def close(self) -> None:
        """End the thread once it has written what it has."""
        self._batches.put(None)

    def _hand_over(self) -> None:
        if self._leaving or not self._waiting:
            return
        batch = [(line, written) for line, written in self._waiting if not written.done()]
        self._waiting.clear()
        if batch:
            self._leaving = [written for _, written in batch]
            self._batches.put(b"".join(line + b"\n" for line, _ in batch))

    def _left(self, failure: OSError | None) -> None:
        """Back in the loop: a batch has left, or cannot."""
        leaving, self._leaving = self._leaving, []
        if failure is not None:
            leaving += [written for _, written in self._waiting]
            self._waiting.clear()
            log.info("output.broken why=%s", failure.strerror)
            self.broken.set()
        for written in leaving:
            if written.done():
                continue
            if failure is None:
                written.set_result(None)
            else:
                written.set_exception(BrokenPipeError(failure.errno, failure.strerror))
        self._hand_over()

    def _write(self) -> None:
        while (batch := self._batches.get()) is not None:
            failure: OSError | None = None
            try:
                _write_all(self._descriptor, batch)
            except OSError as error:
                failure = error
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                self._loop.call_soon_threadsafe(self._left, failure)


def _read_some(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:  # whoever gave us the descriptor made it non-blocking
            _wait(descriptor, select.POLLIN)
        except OSError as error:  # a terminal that was hung up, a socket that was reset
            log.info("input.broken why=%s", error.strerror)
            return b""


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            _wait(descriptor, select.POLLOUT)


def _wait(descriptor: int, event: int) -> None:
    waiting = select.poll()
    waiting.register(descriptor, event)
    waiting.poll()
