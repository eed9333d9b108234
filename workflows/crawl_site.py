"""`crawl_site`: visit the pages of one site, politely and within limits, and say what is there.

The workflow holds what is known of every address, in the order found; activities visit a batch of them. At a page
that needs a login a person names a credential of the worker's secret store, or enters one on a page of the server, or
skips, or stops. Only the name passes through here, or what was entered, sealed: no secret is in the history. State and
result are bounded by `MAX_KNOWN`, `MAX_URL` and `MAX_TITLE`, far below Temporal's 2 MiB.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from temporalio import activity, workflow
from temporalio.common import RetryPolicy

from .kit import Declined, SealedAnswer, SecretForm, Task, ToolError, tool

BATCH: Final = 10
"""Pages visited by one activity: few enough to lose when a worker dies, and to answer a login page soon."""

MAX_KNOWN: Final = 2_500
"""Addresses remembered; links beyond are counted, not followed."""

MAX_URL: Final = 400
"""Longest address followed, in characters (ASCII)."""

MAX_TITLE: Final = 120
MAX_LINKS: Final = 200
"""Links taken from one page."""

MAX_PROBLEMS: Final = 100
"""Problems told one by one in the result."""

STEP: Final = workflow.ActivityConfig(
    start_to_close_timeout=timedelta(minutes=20),  # a batch of slow pages with the longest delay, each tried twice
    heartbeat_timeout=timedelta(seconds=15),
    retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10), maximum_attempts=5),
)

SKIP: Final = "skip"
SKIP_ALL: Final = "skip-all"
STOP: Final = "stop"
ENTER: Final = "enter"
USE: Final = "use:"


class CrawlArgs(BaseModel):
    """Where to start, and the limits."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    url: str = Field(
        min_length=1, max_length=MAX_URL, description="The page to start at, http or https. Only its site is visited."
    )
    max_pages: int = Field(default=50, ge=1, le=500, description="Pages visited at most.")
    max_depth: int = Field(default=3, ge=0, le=20, description="Links followed from the start page at most.")
    max_page_bytes: int = Field(default=1_000_000, ge=1_000, le=5_000_000, description="Larger pages are skipped.")
    delay_ms: int = Field(
        default=500, ge=0, le=30_000, description="Pause before each page; the site's own, if longer, holds."
    )


class SiteLogin(SecretForm):
    """What a person enters for a site that asks for it."""

    username: str = Field(
        default="",
        max_length=200,
        title="User name",
        description="Leave it empty if the site takes a token alone.",
    )
    password: SecretStr = Field(min_length=1, max_length=4_000, title="Password or token")


class Entered(BaseModel):
    """A `SiteLogin`, sealed, for one site: scheme, host and port."""

    site: str
    answer: SealedAnswer


class Start(BaseModel):
    """The start address in its canonical form."""

    url: str


class Batch(BaseModel):
    """Addresses to visit, with the name of the credential that may be used where a page needs a login, or what was
    entered for the site.
    """

    urls: list[str]
    max_page_bytes: int
    delay_ms: int
    credential: str | None
    entered: Entered | None = None
    done: int
    total: int


class Visit(BaseModel):
    """What a visit found. `login`: the page needs one; `credentials` are the names that may be used, `refused` the one
    that failed. `challenged`: it asks for one in HTTP's own way; `entered_refused`: what was entered failed.
    """

    url: str
    outcome: Literal["fetched", "moved", "skipped", "failed", "login"]
    title: str | None = None
    size: int = 0
    reason: str | None = None
    links: list[str] = Field(default_factory=list)
    credentials: list[str] = Field(default_factory=list)
    refused: str | None = None
    challenged: bool = False
    entered_refused: bool = False


class Visits(BaseModel):
    """A batch's visits, in order."""

    visits: list[Visit]


class Page(BaseModel):
    """What is known of one address."""

    depth: int
    outcome: Literal["queued", "fetched", "moved", "skipped", "failed"] = "queued"
    title: str | None = None
    size: int = 0
    reason: str | None = None


class CrawlState(BaseModel):
    """Everything the crawl knows; `pages` is in the order found, so that the queue is breadth first."""

    start: str
    pages: dict[str, Page]
    left_out: int = 0
    credential: str | None = None
    entered: Entered | None = None
    skip_logins: bool = False
    stopped: bool = False

    def queue(self, limit: int) -> list[str]:
        """The next addresses to visit, at most `limit`."""
        queued = (url for url, page in self.pages.items() if page.outcome == "queued")
        return [url for url, _ in zip(queued, range(limit), strict=False)]

    def count(self, *outcomes: str) -> int:
        """How many addresses ended in one of `outcomes`."""
        return sum(page.outcome in outcomes for page in self.pages.values())

    def record(self, visit: Visit, *, max_depth: int) -> None:
        """Take up a visit that is not a login, and queue what it leads to."""
        page = self.pages[visit.url]
        for name in ("outcome", "title", "size", "reason"):
            setattr(page, name, getattr(visit, name))
        depth = page.depth if visit.outcome == "moved" else page.depth + 1
        for link in visit.links:
            if link in self.pages or depth > max_depth:
                continue
            if len(self.pages) < MAX_KNOWN:
                self.pages[link] = Page(depth=depth)
            else:
                self.left_out += 1


class FoundPage(BaseModel):
    """A page that was fetched."""

    url: str
    title: str | None
    size: int = Field(description="Bytes.")


class Problem(BaseModel):
    """An address that was skipped or failed, and why."""

    url: str
    reason: str


class CrawlResult(BaseModel):
    """What the crawl found."""

    start: str
    fetched: int
    skipped: int
    failed: int
    not_visited: int = Field(
        description="Addresses found but not visited: a limit was reached, or the crawl was stopped."
    )
    stopped: bool = Field(description="Whether a person stopped the crawl at a login page.")
    pages: list[FoundPage]
    problems: list[Problem] = Field(description=f"The first {MAX_PROBLEMS} addresses that were skipped or failed.")


@activity.defn
async def open_crawl(request: CrawlArgs) -> Start:
    """Check that the site may be visited from this worker."""
    raise NotImplementedError


@activity.defn
async def visit_pages(request: Batch) -> Visits:
    """Visit a batch of pages of one site, one after the other."""
    raise NotImplementedError


@tool(
    name="crawl_site",
    title="Crawl a site",
    description=(
        "Visits the pages of one website within limits, respecting its robots.txt, and lists what it found. "
        "At a page that needs a login it asks which of the worker's named credentials to use, or to enter one on a "
        "page of this server, where neither client nor model sees it, or to skip the page, or to stop."
    ),
    annotations={"readOnlyHint": True, "openWorldHint": True},
    client_capabilities={"elicitation": {}},
)
class CrawlSite(Task[CrawlArgs, CrawlResult]):
    """A loop over batches; see the module."""

    State = CrawlState
    state: CrawlState | None

    async def execute(self, arguments: CrawlArgs) -> CrawlResult:
        """Visit until a limit is reached, nothing is left, or a person stops it."""
        state = self.state
        if state is None:
            start = await workflow.execute_activity(open_crawl, arguments, **STEP)
            state = CrawlState(start=start.url, pages={start.url: Page(depth=0)})
        while not state.stopped:
            done = state.count("fetched", "moved", "skipped", "failed")
            urls = state.queue(min(BATCH, arguments.max_pages - done))
            if not urls:
                break
            self.progress(
                done, total=arguments.max_pages, message=f"{done} pages visited, {state.count('queued')} waiting"
            )
            batch = Batch(
                urls=urls,
                max_page_bytes=arguments.max_page_bytes,
                delay_ms=arguments.delay_ms,
                credential=state.credential,
                entered=state.entered,
                done=done,
                total=arguments.max_pages,
            )
            found = await workflow.execute_activity(visit_pages, batch, **STEP)
            await self._take_up(state, found.visits, arguments.max_depth)
            await self.checkpoint(state)
        _check_start_page(state)
        return _result(state)

    async def _take_up(self, state: CrawlState, visits: list[Visit], max_depth: int) -> None:
        """Record visits, and ask about the first page that needs a login: what is chosen may settle the others too."""
        logins = [visit for visit in visits if visit.outcome == "login"]
        for visit in visits:
            if visit.outcome != "login":
                state.record(visit, max_depth=max_depth)
        if logins and not state.skip_logins:
            await self._ask_login(state, logins[0])
        if state.skip_logins:
            for visit in logins:
                _skip(state, visit)

    async def _ask_login(self, state: CrawlState, visit: Visit) -> None:
        names = [name for name in visit.credentials if name != visit.refused]
        options = {f"{USE}{name}": f"Use the credential {name}" for name in names}
        if visit.challenged and self.can_ask_secret():
            options[ENTER] = "Enter a user name and password on a page of this server"
        options |= {SKIP: "Skip this page", SKIP_ALL: "Skip every page that needs a login", STOP: "Stop here"}
        refused = f" The credential {visit.refused} was refused." if visit.refused else ""
        if visit.entered_refused:
            refused, state.entered = " What was entered was refused.", None
        try:
            choice = await self.choose(
                f"{visit.url} needs a login.{refused} How should the crawl go on?", options, title="Go on"
            )
        except Declined:
            choice = SKIP
        if choice == STOP:
            state.stopped = True
        elif choice == SKIP_ALL:
            state.skip_logins = True
        elif choice == SKIP:
            _skip(state, visit)
        elif choice == ENTER:
            await self._ask_secret(state, visit)
        else:
            state.credential, state.entered = choice.removeprefix(USE), None

    async def _ask_secret(self, state: CrawlState, visit: Visit) -> None:
        """Have a user name and password entered for exactly the site that asked."""
        parts = urlsplit(visit.url)
        site = f"{parts.scheme}://{parts.netloc}"
        plain = " The site has no encryption, so they go there in clear." if parts.scheme == "http" else ""
        try:
            answer = await self.ask_secret(
                f"{site} asks for a user name and password. They are used for this crawl and this site alone.{plain}",
                SiteLogin,
            )
        except Declined:
            _skip(state, visit)
        else:
            state.credential, state.entered = None, Entered(site=site, answer=answer)


def _skip(state: CrawlState, visit: Visit) -> None:
    page = state.pages[visit.url]
    page.outcome, page.reason = "skipped", "needs a login"


def _check_start_page(state: CrawlState) -> None:
    """A start page that failed or led nowhere leaves nothing to tell.

    Raises:
        ToolError: That is so.
    """
    start = state.pages[state.start]
    if len(state.pages) == 1 and start.outcome in {"failed", "skipped"}:
        raise ToolError(f"{state.start} could not be crawled: {start.reason}.")


def _result(state: CrawlState) -> CrawlResult:
    pages = state.pages.items()
    problems = [
        Problem(url=url, reason=page.reason or "") for url, page in pages if page.outcome in {"skipped", "failed"}
    ]
    return CrawlResult(
        start=state.start,
        fetched=state.count("fetched"),
        skipped=state.count("skipped"),
        failed=state.count("failed"),
        not_visited=state.count("queued") + state.left_out,
        stopped=state.stopped,
        pages=[
            FoundPage(url=url, title=page.title, size=page.size) for url, page in pages if page.outcome == "fetched"
        ],
        problems=problems[:MAX_PROBLEMS],
    )
