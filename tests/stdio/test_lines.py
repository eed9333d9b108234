"""Lines in, lines out, over real descriptors."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bridge.lines import CHUNK_BYTES, READ_AHEAD, Splitter, Writer, lines
from tests.support import eventually

LIMIT = 100


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:  # the test has closed it
            continue


def split(*chunks: bytes) -> list[bytes | None]:
    splitter = Splitter(LIMIT)
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    return [*found, *splitter.end()]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((b"a\nb\n",), [b"a", b"b"]),
        ((b"a", b"b", b"\nc\n"), [b"ab", b"c"]),
        ((b"a\r\nb\r\n",), [b"a\r", b"b\r"]),
        ((b"\n \n\t\r\n\na\n",), [b"a"]),
        ((b"a\nb",), [b"a", b"b"]),
        (("a\u2028b\u0085c\x0bd\x0ce\x1cf\rg\n".encode(),), ["a\u2028b\u0085c\x0bd\x0ce\x1cf\rg".encode()]),
        ((b"x" * LIMIT + b"\n",), [b"x" * LIMIT]),
        ((b"x" * (LIMIT + 1) + b"\na\n",), [None, b"a"]),
        ((b"x" * LIMIT, b"x", b"x" * 1000, b"x\na", b"\n"), [None, b"a"]),
        ((b"x" * (LIMIT + 1), b"\n" + b"y" * (LIMIT + 1) + b"\n"), [None, None]),
        ((b"x" * (LIMIT + 1),), [None]),
        ((), []),
    ],
)
def test_a_stream_is_cut_at_newlines_and_nowhere_else(chunks: tuple[bytes, ...], expected: list[bytes | None]) -> None:
    assert split(*chunks) == expected


def test_a_line_above_the_limit_is_told_at_once_and_not_kept() -> None:
    splitter = Splitter(LIMIT)
    assert list(splitter.feed(b"x" * (LIMIT + 1))) == [None]
    for _ in range(1000):
        assert list(splitter.feed(b"x" * CHUNK_BYTES)) == []
    assert len(splitter._line) == 0


async def received(descriptor: int) -> list[bytes | None]:
    return [line async for line in lines(descriptor, CHUNK_BYTES)]


async def test_a_regular_file_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"a\nb\nc")
    with (tmp_path / "in").open("rb") as file:
        assert await received(file.fileno()) == [b"a", b"b", b"c"]


async def test_a_descriptor_that_was_made_non_blocking_is_waited_for(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.set_blocking(reading, False)
    arriving = asyncio.create_task(received(reading))
    for part in (b"a", b"b\n", b"c\n"):
        await asyncio.sleep(0.02)
        os.write(writing, part)
    os.close(writing)
    assert await arriving == [b"ab", b"c"]


async def test_a_fast_writer_is_not_read_without_limit(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.set_blocking(writing, False)
    arriving = lines(reading, CHUNK_BYTES)
    os.write(writing, b"first\n")
    assert await anext(arriving) == b"first"
    written = 0
    quiet = 0
    while quiet < 20:
        try:
            written += os.write(writing, b"x" * 1023 + b"\n")
            quiet = 0
        except BlockingIOError:
            quiet += 1
            await asyncio.sleep(0.01)
    assert written < 2 * READ_AHEAD * CHUNK_BYTES  # read ahead, and what the pipe itself holds
    os.close(writing)
    assert sum([len(line or b"") + 1 async for line in arriving]) == written


@pytest.fixture
async def writer(pipe: tuple[int, int]) -> AsyncIterator[Writer]:
    writer = Writer(pipe[1])
    yield writer
    writer.close()


def read_lines(descriptor: int, count: int) -> list[bytes]:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return [file.readline() for _ in range(count)]


@pytest.mark.parametrize("blocking", [True, False])
async def test_lines_of_many_senders_leave_whole_and_in_order(
    pipe: tuple[int, int], writer: Writer, blocking: bool
) -> None:
    os.set_blocking(pipe[1], blocking)
    sent = [bytes([65 + number]) * 50_000 for number in range(20)]
    reading = asyncio.create_task(asyncio.to_thread(read_lines, pipe[0], len(sent)))
    await asyncio.gather(*map(writer.write, sent))
    assert await reading == [line + b"\n" for line in sent]


async def test_a_sender_goes_on_only_when_its_line_has_left(pipe: tuple[int, int], writer: Writer) -> None:
    large = asyncio.create_task(writer.write(b"x" * 1_000_000))
    small = asyncio.create_task(writer.write(b"y"))
    await asyncio.sleep(0.05)
    assert not large.done() and not small.done()
    assert await asyncio.to_thread(read_lines, pipe[0], 2) == [b"x" * 1_000_000 + b"\n", b"y\n"]
    await asyncio.gather(large, small)


async def test_a_line_that_waits_is_withdrawn_with_its_sender(pipe: tuple[int, int], writer: Writer) -> None:
    large = asyncio.create_task(writer.write(b"x" * 1_000_000))
    await asyncio.sleep(0)
    withdrawn, kept = asyncio.create_task(writer.write(b"withdrawn")), asyncio.create_task(writer.write(b"kept"))
    await asyncio.sleep(0)
    withdrawn.cancel()
    assert (await asyncio.to_thread(read_lines, pipe[0], 2))[1] == b"kept\n"
    await asyncio.gather(large, kept)
    assert withdrawn.cancelled()


async def test_every_sender_learns_that_nobody_reads_any_more(pipe: tuple[int, int], writer: Writer) -> None:
    senders = [asyncio.create_task(writer.write(b"x" * 1_000_000)) for _ in range(3)]
    await asyncio.sleep(0.05)
    os.close(pipe[0])
    outcomes = await asyncio.gather(*senders, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [BrokenPipeError] * 3
    assert writer.broken.is_set()
    with pytest.raises(BrokenPipeError):
        await writer.write(b"y")


async def test_the_threads_end_with_their_work(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer = Writer(writing)
    arriving = asyncio.create_task(received(reading))
    await writer.write(b"a")
    writer.close()

    async def writer_ended() -> bool:
        return not [thread for thread in threading.enumerate() if thread.name == "lines-writer"]

    await eventually(writer_ended, what="the writing thread's end")
    os.close(writing)
    assert await arriving == [b"a"]

    async def reader_ended() -> bool:
        return not [thread for thread in threading.enumerate() if thread.name == "lines-reader"]

    await eventually(reader_ended, what="the reading thread's end")
