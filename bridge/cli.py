"""`mcp-tasks`: the one program. It parses options, sets up logging, and turns expected errors into one line and an exit
status.

Exit status 2: a setting or option cannot be used; 1: something it needs cannot run. The only thing on standard output
is the ready line; from `stdio`, MCP messages.
"""

from __future__ import annotations

import asyncio
import errno
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer
import uvloop

from .codec import data_converter
from .lines import Channel, claim_channel
from .loading import load_tasks
from .logs import set_up_logging
from .settings import (
    BridgeSettings,
    CodecServerSettings,
    OperatorError,
    SettingsError,
    StdioSettings,
    WorkerSettings,
)
from .stopping import leave, stop_signals
from .worker import connect_worker_client, run_worker

STOP_WITHIN_SECONDS = 20.0
"""How long a bridge may take to stop: its parts bound their own ends, and what a tasks module holds up is cut off."""

app = typer.Typer(
    name="mcp-tasks",
    help="MCP tasks that are Temporal workflows. Settings come from variables MCP_TASKS_…; Temporal's address and "
    "credentials from its standard variables TEMPORAL_… or its profile file.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port of the MCP endpoint; 0 is any free one. (default: 8000)")
]
Tasks = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE", help="Module with TASKS and ACTIVITIES. (default: bridge.shipped, the sample tools)"
    ),
]
CatalogFile = Annotated[
    Path | None,
    typer.Option(
        "--catalog",
        metavar="FILE",
        help="Catalog file of existing workflows, in place of the sample tools. (default: none)",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")]


def _say_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"mcp-tasks {version('mcp-temporal-tasks')}\n")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Print the version and end.")
    ] = False,
) -> None:
    """Options of the program itself."""


@app.command()
def dev(
    port: Port = None,
    temporal_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of Temporal; 0 is any free one.")] = 7233,
    ui_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of Temporal's web page; 0 is any free one.")
    ] = 8233,
    db: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Keep tasks in this file. (default: in memory, lost on restart)"
        ),
    ] = None,
    tasks: Tasks = None,
    catalog: CatalogFile = None,
    as_json: AsJson = False,
) -> None:
    """Run everything on loopback: Temporal with its web page, a worker, and the bridge. Ctrl-C ends it all."""
    from .dev import DevOptions, run_dev  # not above: a worker starts faster without HTTP

    options = DevOptions(
        port=port,
        temporal_port=temporal_port,
        ui_port=ui_port,
        database=db,
        tasks=tasks,
        catalog=catalog,
        as_json=as_json,
    )
    asyncio.run(run_dev(options))


@app.command()
def bridge(
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to bind; others than loopback need callers to be known, by a token or otherwise. "
            "(default: 127.0.0.1)"
        ),
    ] = None,
    port: Port = None,
    tasks: Tasks = None,
    catalog: CatalogFile = None,
    as_json: AsJson = False,
) -> None:
    """Serve MCP over HTTP, in front of any Temporal."""
    settings = BridgeSettings.load(host=host, port=port, tasks=tasks, catalog=catalog)
    set_up_logging(settings.log_level)
    uvloop.run(_bridge(settings, as_json=as_json))


@app.command()
def stdio(tasks: Tasks = None, catalog: CatalogFile = None) -> None:
    """Serve MCP on standard input and output, to the one client that starts this."""
    channel = claim_channel()
    settings = StdioSettings.load(tasks=tasks, catalog=catalog)
    set_up_logging(settings.log_level)
    uvloop.run(_stdio(settings, channel))


@app.command()
def worker(
    tasks: Tasks = None,
    task_queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Queue to work on. (default: mcp-tasks)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the workflows and activities of a tasks module, on any Temporal."""
    settings = WorkerSettings.load(tasks=tasks, task_queue=task_queue)
    set_up_logging(settings.log_level)
    uvloop.run(_worker(settings, as_json=as_json))


@app.command("codec-server")
def codec_server(
    host: Annotated[
        str | None, typer.Option(help="Address to bind; others than loopback need a token. (default: 127.0.0.1)")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Its port; 0 is any free one. (default: 8081)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Decrypt for Temporal's web page and CLI, over Temporal's codec server protocol."""
    settings = CodecServerSettings.load(codec_host=host, codec_port=port)
    set_up_logging(settings.log_level)
    uvloop.run(_codec_server(settings, as_json=as_json))


@app.command()
def vendor(
    dest: Annotated[Path, typer.Argument(metavar="DEST", help="Folder of the copy, e.g. acme/mcp_kit.")],
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit status 1 if it is out of date, 2 if there is none.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what was changed by hand.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Copy the author's kit into a project of your own, or update the copy there."""
    from . import vendor as kit

    done = kit.check(dest) if check else kit.vendor(dest, force=force)
    sys.stdout.write(done.line(as_json=as_json) + "\n")


async def _bridge(settings: BridgeSettings, *, as_json: bool) -> None:
    from .app import running_bridge
    from .heap import settle

    async with stop_signals(within=STOP_WITHIN_SECONDS) as stop, running_bridge(settings) as url:
        settle()
        _say_ready("bridge", {"mcp": url}, as_json=as_json)
        await stop.wait()


async def _stdio(settings: StdioSettings, channel: Channel) -> None:
    from .service import running_service
    from .stdio import serve_stdio

    async with stop_signals(within=STOP_WITHIN_SECONDS) as stop, running_service(settings) as service:
        await serve_stdio(service.server, service.older, channel, stop, max_line_bytes=settings.max_body_bytes)


async def _codec_server(settings: CodecServerSettings, *, as_json: bool) -> None:
    from .codec_server import codec_service, running_codec_server

    async with (
        stop_signals(within=STOP_WITHIN_SECONDS) as stop,
        codec_service(settings) as service,
        running_codec_server(service, settings.codec_host, settings.codec_port) as url,
    ):
        _say_ready("codec-server", {"codec": url}, as_json=as_json)
        await stop.wait()


async def _worker(settings: WorkerSettings, *, as_json: bool) -> None:
    module = load_tasks(settings.tasks)
    facts = {"task_queue": settings.task_queue, "tasks": settings.tasks}
    client = await connect_worker_client(data_converter(settings.encryption_keys))
    async with stop_signals() as stop:
        await run_worker(client, module, settings, stop, started=lambda: _say_ready("worker", facts, as_json=as_json))


def _say_ready(command: str, facts: dict[str, str], *, as_json: bool) -> None:
    words = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
    sys.stdout.write(f"{json.dumps(facts) if as_json else f'mcp-tasks {command} is ready: {words}'}\n")
    sys.stdout.flush()


def main() -> NoReturn:
    """Entry point of the console script."""
    leave(_status())


def _status() -> int:
    try:
        app()
    except SystemExit as end:  # how the library ends every command
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except OperatorError as error:
        return _give_up(str(error), error.exit_status)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
            raise
        return _give_up(str(error.strerror), SettingsError.exit_status)
    return 0


def _give_up(reason: str, status: int) -> int:
    sys.stderr.write(f"mcp-tasks: {' '.join(reason.split())}\n")
    return status


if __name__ == "__main__":
    main()
