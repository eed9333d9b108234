"""What the sample tools work on: two databases, an application with three releases, a small website."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from activities.deploy_release import ROOT_VARIABLE as DEPLOY_ROOT
from activities.migrate_records import ROOT_VARIABLE as MIGRATE_ROOT
from activities.secret_store import FILE_VARIABLE as SECRETS_FILE
from activities.web import ALLOW_PRIVATE_VARIABLE as ALLOW_PRIVATE

RECORDS: Final = 2000
AMBIGUOUS: Final = (1000, 1400, 1800)
"""Keys of the records whose domain two accounts share."""

ACCOUNTS: Final = (
    (1, "Acme", "acme.example"),
    (2, "Initech North", "initech.example"),
    (3, "Initech South", "initech.example"),
)
CREDENTIAL: Final = "staff-wiki"
_LOGIN: Final = ("crawler", "made-up-for-the-demo")

PAGES: Final = {
    "/": ("Welcome", ["/products", "/about", "/staff"]),
    "/products": ("Products", ["/", "/products/anvil"]),
    "/products/anvil": ("Anvil", ["/products"]),
    "/about": ("About us", ["/"]),
    "/staff": ("Staff only", ["/staff/rota"]),
    "/staff/rota": ("Rota", []),
}


@dataclass(frozen=True)
class World:
    """Everything below one folder, and the address of the website."""

    folder: Path
    site: str

    @property
    def environment(self) -> dict[str, str]:
        """What the worker's operator sets: where the tools may work, and with which credentials."""
        return {
            MIGRATE_ROOT: str(self.folder / "migrate"),
            DEPLOY_ROOT: str(self.folder / "deploy"),
            SECRETS_FILE: str(self.folder / "secrets.json"),
            ALLOW_PRIVATE: "1",  # the website is on this machine
        }

    def arrived(self) -> list[int]:
        """The number of each record in the target, in the order of arrival."""
        return _numbers(self.folder / "migrate" / "new.db")

    def left(self) -> list[int]:
        """The number of each record still in the source."""
        return _numbers(self.folder / "migrate" / "old.db")

    def live_release(self) -> str:
        """The release that is live."""
        return (self.folder / "deploy" / "shop" / "current").resolve().name


@asynccontextmanager
async def world_in(folder: Path) -> AsyncIterator[World]:
    """Make the world below `folder`; its website runs within the context."""
    runner = web.AppRunner(_website(folder / "deploy" / "shop" / "current"), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        site = f"http://127.0.0.1:{runner.addresses[0][1]}"
        _make_databases(folder / "migrate")
        _make_releases(folder / "deploy" / "shop", f"{site}/health")
        _make_secrets(folder / "secrets.json", site)
        yield World(folder, site)
    finally:
        await runner.cleanup()


def _make_databases(folder: Path) -> None:
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "old.db")) as source, source:
        source.execute("CREATE TABLE contacts (id INTEGER PRIMARY KEY, name TEXT, email TEXT)")
        domains = {number: "initech.example" if number in AMBIGUOUS else "acme.example" for number in _all_numbers()}
        source.executemany(
            "INSERT INTO contacts VALUES (?, ?, ?)",
            [(number, f"Person {number}", f"{number}@{domain}") for number, domain in domains.items()],
        )
    with closing(sqlite3.connect(folder / "new.db")) as target, target:
        target.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, name TEXT, domain TEXT)")
        target.executemany("INSERT INTO accounts VALUES (?, ?, ?)", ACCOUNTS)
        target.execute("CREATE TABLE contacts (id INTEGER PRIMARY KEY, name TEXT, email TEXT, account_id INTEGER)")


def _all_numbers() -> range:
    return range(1, RECORDS + 1)


def _numbers(database: Path) -> list[int]:
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT email FROM contacts ORDER BY id").fetchall()
    return [int(email.partition("@")[0]) for (email,) in rows]


def _make_releases(application: Path, health_url: str) -> None:
    for release, banner in (("v1", "Hello"), ("v2", "Welcome"), ("v3", "Willkommen")):
        files = application / "releases" / release
        files.mkdir(parents=True)
        (files / "banner.txt").write_text(f"{banner}\n")
        (files / "app.py").write_text(f"print(open('banner.txt').read())  # {release}\n")
    (application / "current").symlink_to(Path("releases", "v1"))
    (application / "deploy.toml").write_text(f'health_url = "{health_url}"\nhealth_seconds = 10\n')


def _make_secrets(file: Path, site: str) -> None:
    user, password = _LOGIN
    credential = {"name": CREDENTIAL, "kind": "basic", "username": user, "password": password, "hosts": [site]}
    file.touch(0o600)
    file.write_text(json.dumps({"credentials": [credential]}))


def _website(current: Path) -> web.Application:
    expected = "Basic " + base64.b64encode(":".join(_LOGIN).encode()).decode()

    async def page(request: web.Request) -> web.Response:
        if request.path not in PAGES:
            raise web.HTTPNotFound
        if request.path.startswith("/staff") and request.headers.get("Authorization") != expected:
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": 'Basic realm="staff"'})
        title, links = PAGES[request.path]
        anchors = "".join(f'<a href="{link}">{link}</a>' for link in links)
        return web.Response(text=f"<title>{title}</title>{anchors}", content_type="text/html")

    def live() -> str:
        return current.resolve().name

    async def health(_request: web.Request) -> web.Response:
        return web.Response(text=f"{live()} is well\n")

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_get("/{path:.*}", page)
    return app
