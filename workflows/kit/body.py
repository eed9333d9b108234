"""Runs the author's code so that nothing it does can hang its run, end the worker, or lose a cancel.

Three facts make this necessary (all measured):

- Temporal cancels a run once. A step that returns a value all the same (WAIT_CANCELLATION_COMPLETED, `asyncio.shield`)
  swallows that one CancelledError. `Body` sees every suspension of the author's code, notices that the cancel did not
  show, and raises it again at the next one, until it was seen.
- SystemExit in workflow code ends the worker process, and any other BaseException leaves the run open with nothing
  pending. `Body` turns whatever escapes into an outcome.
- An exception of a child task that nobody awaits is never heard of. `Body` fails the tool with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from temporalio.exceptions import FailureError, is_cancelled_exception

T = TypeVar("T")


class Body(Generic[T]):
    """The author's coroutine as a task of its own, and how it ended: `error`, or else `value`.

    `stop_unseen` is true from `stop` until the author's code has been shown the cancel.
    """

    value: T
    error: BaseException | None = None

    def __init__(self, code: Coroutine[Any, Any, T]) -> None:
        """Start `code` in the running workflow loop."""
        self._code = code
        self.stop_unseen = False
        self._cancels = 0
        self._failed_children: list[tuple[asyncio.Task[Any], BaseException]] = []
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(self._run())
        self._contain_children(loop)

    def stop(self) -> None:
        """Cancel the code where it waits; seen by the author exactly once, even if the step it waits for finishes all
        the same.
        """
        self.stop_unseen = True
        self._cancel()

    def _cancel(self) -> None:
        self._cancels += 1
        self.task.cancel()

    async def _run(self) -> None:
        try:
            self.value = await _Observed(self._code, self._resumed)
        except BaseException as error:
            self.error = error
        else:
            self.error = self._unheard_failure()

    def _resumed(self, waited_for: Any, thrown: BaseException | None) -> None:
        """Called at each resumption of the code, with what it waited for and what is raised in it there."""
        if not self.stop_unseen:
            return
        if isinstance(thrown, asyncio.CancelledError) or _shows_cancel(waited_for):
            self.stop_unseen = False
            for _ in range(self._cancels):  # else a TaskGroup in the unwinding takes a spent one for a new one (3.13)
                self.task.uncancel()
        else:
            self._cancel()

    def _unheard_failure(self) -> BaseException | None:
        for task, error in self._failed_children:
            # asyncio's own mark of "exception was never retrieved"
            if task._log_traceback:
                return task.exception() or error
        return None

    def _contain_children(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wrap every task made from now on in this run. The workflow loop is one object per run and takes no task
        factory.
        """
        create_task = loop.create_task

        def create_contained_task(coro: Any, **options: Any) -> asyncio.Task[Any]:
            task = create_task(self._contained(coro), **options)
            task.add_done_callback(lambda _: coro.close())  # a task cancelled before its first step never awaits it
            return task

        loop.create_task = create_contained_task  # type: ignore[method-assign]

    async def _contained(self, coro: Awaitable[Any]) -> Any:
        try:
            return await coro
        except asyncio.CancelledError:
            raise
        except (SystemExit, KeyboardInterrupt) as error:
            contained = RuntimeError(f"{type(error).__name__} in a tool")
            self._remember(contained)
            raise contained from error
        except Exception as error:
            self._remember(error)
            raise

    def _remember(self, error: BaseException) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._failed_children.append((task, error))


class _Observed(Generic[T]):
    """Awaits `code` and tells `resumed` about each resumption: the object it waited for, and the exception thrown in,
    if any.
    """

    def __init__(self, code: Coroutine[Any, Any, T], resumed: Any) -> None:
        self._code = code
        self._resumed = resumed

    def __await__(self) -> Generator[Any, None, T]:
        steps = self._code.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                waits_for = next(steps) if thrown is None else steps.throw(thrown)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            thrown = None
            try:
                yield waits_for
            except BaseException as error:
                thrown = error
            self._resumed(waits_for, thrown)


def what_it_says(error: BaseException) -> BaseException:
    """`error`, or of a group (`asyncio.TaskGroup`) the one that counts: a bug first, else what a tool raised on
    purpose, else the cancel.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    said = [what_it_says(part) for part in error.exceptions]
    meant = [part for part in said if not is_cancelled_exception(part)]
    bugs = [part for part in meant if not isinstance(part, FailureError)]
    return [*bugs, *meant, *said][0]


def _shows_cancel(waited_for: Any) -> bool:
    """Whether awaiting this future raises a cancellation: its own, or an activity's or child's error caused by one."""
    if not isinstance(waited_for, asyncio.Future) or not waited_for.done():
        return False
    if waited_for.cancelled():
        return True
    error = waited_for.exception()
    return error is not None and is_cancelled_exception(error)
