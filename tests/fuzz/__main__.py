"""`python -m tests.fuzz`: generated input against the running product and the functions that read input, for a time.

Every slice has a seed, which names its input: `--seed N --only TARGET` repeats it. What was found is kept in `.fuzz/`.
The exit status is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import time
from typing import Final

from rich.console import Console

from tests.fuzz.pure import PURE
from tests.fuzz.served import served
from tests.fuzz.target import Failure, Target, examine
from tests.fuzz.world import World, running_world
from tests.support import ROOT

FINDS: Final = ROOT / ".fuzz"
RENEW_EVERY: Final = 5
"""Slices after which tasks and states that generators name are new."""


class Run:
    """One run of all targets, in turns."""

    def __init__(self, base: int, only: set[str], console: Console) -> None:
        self.base = base
        self.console = console
        self.failures: list[Failure] = []
        self.examples = 0
        self._only = only
        self._broken: set[str] = set()

    def wants(self, target: Target) -> bool:
        """Whether it is to be fuzzed, and has not failed yet: a second failure would mostly be the first again."""
        return target.name not in self._broken and (not self._only or target.name in self._only)

    def found(self, failure: Failure) -> None:
        """Note it, and keep it in a file."""
        self._broken.add(failure.target)
        self.failures.append(failure)
        FINDS.mkdir(exist_ok=True)
        file = FINDS / f"{failure.target}-{failure.seed}.txt"
        file.write_text(
            f"python -m tests.fuzz --seed {failure.seed} --only {failure.target}\n\n{failure.example!r}\n\n"
            f"{failure.why}\n",
            encoding="utf-8",
            errors="backslashreplace",
        )
        self.console.print(f"[red]found[/] {failure.target}, seed {failure.seed}: {file}")
        self.console.print(failure.why.strip().splitlines()[-1][:300], markup=False)

    async def slice(self, target: Target, number: int) -> None:
        """One slice of one target, beside the event loop."""
        began = time.monotonic()
        failure = await asyncio.to_thread(examine, target, number)
        self.examples += target.examples
        if failure is not None:
            self.found(failure)
        else:
            self.console.print(
                f"{target.name:<14} seed {number}  {target.examples} examples in {time.monotonic() - began:.1f} s"
            )


async def fuzz(run: Run, seconds: float, *, with_world: bool) -> None:
    """Until `seconds` are over; every target has one slice at least."""
    until = time.monotonic() + seconds
    if not with_world:
        await _rounds(run, list(PURE), until, None)
        return
    async with running_world() as world:
        targets = [*PURE, *served(world, asyncio.get_running_loop())]
        await _rounds(run, targets, until, world)
        try:
            runs = await world.end()
            world.check_logs()
        except AssertionError as wrong:
            run.found(Failure("end", run.base, None, str(wrong)))
        else:
            run.console.print(f"{runs} runs have ended as they should")


async def _rounds(run: Run, targets: list[Target], until: float, world: World | None) -> None:
    for number in itertools.count(run.base):
        for target in filter(run.wants, targets):
            await run.slice(target, number)
            if world is not None:
                await _look(run, world, target, number)
            if time.monotonic() > until and number > run.base:
                return
        if world is not None and number % RENEW_EVERY == 0:
            await world.renew()
        if time.monotonic() > until or not any(map(run.wants, targets)):
            return


async def _look(run: Run, world: World, target: Target, number: int) -> None:
    """Whether a normal client is still served, and nothing was complained about."""
    try:
        await world.check()
    except (AssertionError, OSError, TimeoutError) as wrong:
        run.found(Failure(target.name, number, None, f"after it: {type(wrong).__name__}: {wrong}"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=2.0, help="how long, besides the start and the end")
    parser.add_argument("--seed", type=int, help="the seed of the first slice; by default another one each time")
    parser.add_argument("--only", action="append", default=[], metavar="TARGET", help="a target; may be repeated")
    options = parser.parse_args()
    console = Console()
    base = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    run = Run(base, set(options.only), console)
    pure = {target.name for target in PURE}
    with_world = not options.only or not set(options.only) <= pure
    seconds = 0.0 if options.seed is not None and options.only else options.minutes * 60
    asyncio.run(fuzz(run, seconds, with_world=with_world))
    console.print(f"{run.examples} examples from seed {base}: {len(run.failures)} finds")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
