# SPDX-License-Identifier: Apache-2.0
"""The report of a run, as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from chaos.dev import report
from chaos.dev.lines import Yielded
from chaos.dev.report import HandOff

if TYPE_CHECKING:
    from chaos.dev.demo import Options, Result

_SHOWN = 5


def render(result: Result, options: Options, console: Console) -> None:
    """Print it."""
    console.print()
    _jobs(result, console)
    swaps = [one for one in report.hand_offs(result.evidence) if one.begin >= result.shared.begin]
    _hand_offs(swaps, console)
    _duty(result, swaps, console)
    _promises(result, options, console)


def _jobs(result: Result, console: Console) -> None:
    table = Table(box=None, padding=(0, 3, 0, 0))
    for title in ("job", "turns alone", "turns shared", "median wait shared", "longest"):
        table.add_column(title, justify="left" if title == "job" else "right")
    for job, window in result.solo.items():
        alone = [turn for one, turn in result.evidence.turns(window) if one == job]
        shared = [turn for one, turn in result.evidence.turns(result.shared) if one == job]
        waits = [turn.granted - turn.asked for turn in shared]
        table.add_row(job, str(len(alone)), str(len(shared)), _ms(report.middle(waits)), _ms(max(waits, default=0)))
    console.print(table)
    free = [turn.granted - turn.asked for one, turn in _stayed(result)]
    if free:
        console.print(f"A turn for the job that is on the devices already: {_ms(report.middle(free))} (median).")


def _stayed(result: Result) -> list[tuple[str, Yielded]]:
    """Turns of a job that had the turn before, too."""
    turns = result.evidence.turns()
    return [after for before, after in pairwise(turns) if before[0] == after[0]]


def _hand_offs(swaps: Sequence[HandOff], console: Console) -> None:
    if not swaps:
        console.print("There was no hand-off.")
        return
    table = Table(
        title=f"\n{len(swaps)} hand-offs in the shared phase", title_justify="left", box=None, padding=(0, 3, 0, 0)
    )
    for title in ("", "median", "p95", "max"):
        table.add_column(title, justify="right" if title else "left")
    rows = {
        "from the last kernel of one to the next able to run": [one.took for one in swaps],
        "  of that, copies out and in": [one.copying for one in swaps],
        "coordination, until the next job has been told": [one.coordination for one in swaps],
    }
    for name, values in rows.items():
        table.add_row(name, _ms(report.middle(values)), _ms(report.percentile(values, 0.95)), _ms(max(values)))
    console.print(table)


def _duty(result: Result, swaps: Sequence[HandOff], console: Console) -> None:
    evidence = result.evidence
    solo = {job: cycles for job, window in result.solo.items() if (cycles := report.cycles(evidence, window))}
    shared = report.cycles(evidence, result.shared)
    if len(solo) < len(result.solo) or shared is None:
        console.print("\nToo few turns to tell the duty cycles: run longer.")
        return
    alone = {job: report.duty(evidence, window) for job, window in solo.items()}
    each = ", ".join(f"{job} {part:.0%}" for job, part in alone.items())
    swap = report.middle([one.told - one.begin for one in swaps]) / 1e9
    limit = report.bound(alone.values(), report.busy_seconds(evidence, shared), swap)
    where = report.split(evidence, shared, swaps)
    console.print(f"\nduty cycle alone: {each}; shared: {where.busy:.0%}; no schedule could exceed {limit:.0%}")
    console.print(
        f"of the shared time: {where.busy:.0%} kernels, {where.swap:.0%} hand-offs, "
        f"{where.held_idle:.0%} held without a kernel, {where.unheld_idle:.0%} wanted by nobody"
    )


def _promises(result: Result, options: Options, console: Console) -> None:
    events = sum(len(one) for one in result.evidence.devices.values())
    console.print(f"\nThe judge is the devices' own log: {events} events of {options.nodes} nodes.")
    if not result.broken:
        console.print("  overlaps of two jobs on a device: 0    lost or changed bytes: 0    client errors: 0")
        console.print("All promises held.", style="bold green")
        return
    for sentence in result.broken[:_SHOWN]:
        console.print(f"  {sentence}", style="red", soft_wrap=True, highlight=False)
    if len(result.broken) > _SHOWN:
        console.print(f"  and {len(result.broken) - _SHOWN} more")
    console.print("A PROMISE WAS BROKEN.", style="bold red")


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.0f} ms"
