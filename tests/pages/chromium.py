"""A real browser, driven over its DevTools socket: Debian's chromium, headless, with a profile of its own.

Where there is none it is installed once, which takes root and about half a minute; what cannot be had is a reason to
skip.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from bridge.child import start_child, stop_child
from tests.installs import Uninstallable, run_installer

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
START_SECONDS: Final = 60.0
STEP_SECONDS: Final = 30.0


class Tab:
    """One tab. `complaints` are what the browser found wrong with its pages, violations of their policy included."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._session: str | None = None
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []

    async def attach(self) -> None:
        """Open the tab."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")

    async def listen(self) -> None:
        """Read what the browser says, to its end."""
        async for message in self._socket:
            told = message.json()
            if (reply := self._replies.pop(told.get("id", 0), None)) is not None:
                reply.set_result(told)
            elif told.get("method") == "Page.loadEventFired":
                self._loaded.set()
            elif told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                entry = told["params"]["entry"]
                self.complaints.append(f"{entry['text']} {entry.get('url', '')}")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the DevTools protocol."""
        number = next(self._ids)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        session = {"sessionId": self._session} if self._session else {}
        await self._socket.send_json({"id": number, "method": method, "params": params, **session})
        async with asyncio.timeout(STEP_SECONDS):
            answer = await reply
        assert "error" not in answer, answer
        return dict(answer["result"])

    async def open(self, url: str) -> None:
        """Go there, and where it leads."""
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await self._until_loaded()

    async def type(self, selector: str, text: str) -> None:
        """Type into a field, as keys would."""
        await self.run(f"document.querySelector({selector!r}).focus()")
        await self.call("Input.insertText", text=text)

    async def click(self, selector: str, *, leads_on: bool = True) -> None:
        """Click, and wait for the page that it leads to."""
        self._loaded.clear()
        await self.run(f"document.querySelector({selector!r}).click()")
        if leads_on:
            await self._until_loaded()

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        result = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def text(self) -> str:
        """What the page says."""
        return str(await self.run("document.body.innerText"))

    async def phone(self, width: int = 390, height: int = 844) -> None:
        """Be as small as a phone."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True
        )

    async def picture(self) -> bytes:
        """What the page looks like, as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    async def _until_loaded(self) -> None:
        async with asyncio.timeout(STEP_SECONDS):
            await self._loaded.wait()


async def installed() -> str:
    """The path of a browser, installed now if need be. Raises Uninstallable."""
    if found := _found():
        return found
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise Uninstallable("chromium is not installed (Debian: apt-get install chromium)")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    await run_installer(apt, "update", "-qq", environment=quiet)
    await run_installer(apt, "install", "-qq", "-y", "--no-install-recommends", "chromium", environment=quiet)
    if found := _found():
        return found
    raise Uninstallable("chromium was installed but is not on PATH")


def _found() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


@asynccontextmanager
async def tab(profile: Path) -> AsyncIterator[Tab]:
    """A tab of a browser of its own within the context. Raises Uninstallable."""
    process = await start_child(
        [
            await installed(),
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={profile}", "about:blank"),
        ],
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        address = ""
        async with asyncio.timeout(START_SECONDS):
            while not address:
                line = (await process.stderr.readline()).decode(errors="replace")
                assert line, "chromium did not start"
                found = re.search(r"ws://\S+", line)
                address = found[0] if found else ""
        draining = asyncio.create_task(process.stderr.read())
        async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
            opened = Tab(socket)
            listening = asyncio.create_task(opened.listen())
            await opened.attach()
            yield opened
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    finally:
        await stop_child(process, ask=signal.SIGKILL, patience=10)
    await draining
