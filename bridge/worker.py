"""The worker: runs the workflows and activities of one tasks module on one task queue.

It ends in order: no new work is taken, running activities get a grace, and the sticky queue is given up, so that the
next worker answers at once. A worker that is killed instead costs each of its cached workflows one sticky time-out on
the next read, which is why that is short here (Temporal's default is 10 s).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final

from pydantic import ValidationError
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from .bounded import BoundedSteps
from .loading import TasksModule
from .settings import OperatorError, WorkerSettings, temporal_connect_config

log = logging.getLogger(__name__)

KIT: Final = "workflows.kit"

GRACE: Final = timedelta(seconds=20)
"""For running activities after a stop; below the usual 30 s between a container's SIGTERM and its SIGKILL."""

STICKY_TIMEOUT: Final = timedelta(seconds=2)
MAX_CACHED_WORKFLOWS: Final = 1000
MAX_HEARTBEAT_THROTTLE: Final = timedelta(seconds=5)  # heartbeats are progress that people watch
MAX_CONCURRENT_ACTIVITIES: Final = 100
"""Also the number of threads for activities that are not async, so that none waits for a thread unheard."""


class WorkerError(OperatorError):
    """The worker cannot work."""


async def connect_worker_client(data_converter: DataConverter) -> Client:
    """A connected Temporal client for a worker.

    Raises:
        WorkerError: Temporal cannot be reached, or has no such namespace.
        SettingsError: Its address or credentials cannot be read.
    """
    config = temporal_connect_config()
    try:
        client = await Client.connect(**config, data_converter=data_converter)
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RuntimeError as error:
        log.debug("worker.unconnected", exc_info=error)  # the transport's own words, which say little more
        raise WorkerError(f"Temporal at {config['target_host']} cannot be reached") from error
    except RPCError as error:
        raise WorkerError(f"Temporal at {config['target_host']} cannot be used: {error.message}") from error
    return client


async def run_worker(
    client: Client, module: TasksModule, settings: WorkerSettings, stop: asyncio.Event, *, started: Callable[[], None]
) -> None:
    """Work until `stop` is set, then end in order; `started` is called once it polls.

    Raises:
        WorkerError: The worker ended by itself, e.g. because a workflow definition cannot be used.
    """
    with ThreadPoolExecutor(MAX_CONCURRENT_ACTIVITIES, thread_name_prefix="activity") as threads:
        try:
            worker = Worker(
                client,
                task_queue=settings.task_queue,
                workflows=module.tasks,
                activities=module.activities,
                activity_executor=threads,
                workflow_runner=_runner(module),
                workflow_failure_exception_types=[ValidationError],
                disable_payload_error_limit=True,  # the SDK retries for ever what is too large; Temporal ends the run
                interceptors=[BoundedSteps()],
                max_cached_workflows=MAX_CACHED_WORKFLOWS,
                max_concurrent_activities=MAX_CONCURRENT_ACTIVITIES,
                sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
                max_heartbeat_throttle_interval=MAX_HEARTBEAT_THROTTLE,
                graceful_shutdown_timeout=GRACE,
            )
        except ValueError as error:
            raise WorkerError(f"{module.name} cannot be run: {error}") from error
        running = asyncio.create_task(worker.run())
        stopped = asyncio.create_task(stop.wait())
        started()
        log.info("worker.started", extra={"task_queue": settings.task_queue, "tools": len(module.tasks)})
        try:
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            await _end(worker, running)
    log.info("worker.stopped")
    if not stop.is_set():
        raise WorkerError("the worker ended by itself") from running.exception()


def _runner(module: TasksModule) -> SandboxedWorkflowRunner:
    """The sandbox, which shares the kit and what the tasks module says may be shared.

    A module that is not shared is imported anew for each run, and for each return to a run that fell out of the cache:
    8 ms of a core for a small module, 40 ms for the shipped ones (docs/performance.md). What sharing gives up is the
    guard: a clock or a random number that is not the workflow's goes unnoticed. So it is the author's word, not ours.
    """
    return SandboxedWorkflowRunner(SandboxRestrictions.default.with_passthrough_modules(KIT, *module.shared))


async def _end(worker: Worker, running: asyncio.Task[None]) -> None:
    if not running.done():
        try:
            async with asyncio.timeout(GRACE.total_seconds() + 5):
                await worker.shutdown()  # seen to hang against servers that do not know the call
        except TimeoutError:
            log.warning("worker.shutdown_timed_out")
            running.cancel()
    await asyncio.wait({running}, timeout=1)
