"""All contenders of a group take turns, after one that does not count. A figure is the median of its turns, a bar the
median of the turns' ratios: a machine that is busy for a while is so for all of them. A turn begins when what the one
before left to do is done: a task that was made is still to be worked on. Every other time the order is turned round,
because whoever follows one that worked both cores hard is slower for a second or two, whatever it does.
"""

from __future__ import annotations

from typing import Final

from temporalio.service import RPCError

from tests.bench.measure import Comparison, Contender, Outcome, Sample, medians, verdict
from tests.bench.sessions import BenchError, reason
from tests.bench.world import World

WARM_UP: Final = 0.5
"""Part of a turn that each contender works before the first that counts."""


async def compare(world: World, comparison: Comparison) -> Outcome:
    """Measure it. A contender that fails is left out from then on, with its bars, and a note says why."""
    plan, contenders = world.plan, list(comparison.contenders)
    seconds = comparison.seconds * plan.part
    results: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
    notes: list[str] = []
    with world.progress(comparison.title, (plan.turns + 1) * len(contenders)) as step:
        for turn in range(plan.turns + 1):
            for contender in contenders[:: -1 if turn % 2 else 1]:
                step(f"turn {turn}: {contender.name}" if turn else f"warming up {contender.name}")
                try:
                    sample = await _turn(world, contender, seconds if turn else seconds * WARM_UP)
                except* (BenchError, RPCError) as failures:
                    notes.append(f"{contender.name} failed: {reason(failures)}")
                    contenders.remove(contender)
                    del results[contender.name]
                else:
                    if turn:
                        results[contender.name].append(sample)
    rows = {name: medians(samples) for name, samples in results.items()}
    if not plan.quick:
        with world.progress("calls to Temporal", len(contenders)) as step:
            for contender in contenders:
                step(contender.name)
                rows[contender.name] |= await _calls(world, contender, seconds * WARM_UP)
    bars = [bar for bar in comparison.bars if {bar.of, bar.against} <= results.keys()]
    return Outcome(comparison.title, rows, [verdict(bar, results) for bar in bars], notes)


async def _turn(world: World, contender: Contender, seconds: float) -> Sample:
    """One turn, and the processor time that it took, with what it left to do; of a turn that does not count its
    operations only its times.
    """
    if contender.prepare is not None:
        await contender.prepare()
    before = world.accounts.processor()
    sample = await contender.turn(seconds)
    await world.accounts.idle()
    operations = sample.get("operations")
    return sample if operations is None else sample | world.accounts.processor_since(before, operations)


async def _calls(world: World, contender: Contender, seconds: float) -> Sample:
    """The calls of one more turn: Temporal tells them too late to be read between turns."""
    if contender.prepare is not None:
        await contender.prepare()
    before = await world.accounts.calls()
    operations = (await contender.turn(seconds)).get("operations")
    return {} if operations is None else await world.accounts.calls_since(before, operations)
