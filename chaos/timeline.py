# SPDX-License-Identifier: Apache-2.0
"""A history, drawn: one page without anything else, to be looked at in a browser.

A line for each client; what it asked for, from the begin of the call to its end; when it had the turn; what was done to
the system, above; and the moments that the longest order gives to the calls, numbered. What has no place in any order
is red. Of a history that is a lock's all is drawn; of one that is not, the part around what has no place.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

from chaos.linearizability import Kind, Operation, Verdict
from chaos.marks import Mark

SHOWN = 14
"""How many operations before the one that has no place are drawn."""

_LEFT, _WIDTH, _ROW, _TOP, _BAR = 130, 1_080, 46, 62, 16
_TICKS = 8
_PIXELS_A_SECOND = 90
"""Of a whole history, which is scrolled."""

_PAGE = Template("""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>$title</title>
<style>
  :root { --ink: #1c2430; --dim: #66707f; --line: #dfe3e8; --ground: #fff; --asks: #b9d4f5; --has: #2f6fbf;
          --gives: #3d9a78; --bad: #d13438; color-scheme: light dark }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #e6e9ee; --dim: #98a2b1; --line: #343c48; --ground: #14181e; --asks: #2c4767; --has: #6aa5ec;
            --gives: #55b792; --bad: #ff6b6b }
  }
  body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 2rem auto;
         max-width: 78rem; padding: 0 1rem }
  h1 { font-size: 1.3rem; margin: 0 0 .3rem }
  p { margin: .2rem 0; max-width: 72rem }
  figure { margin: 1.2rem 0; overflow-x: auto }
  svg { display: block; font: 12px system-ui, sans-serif }
  text { fill: var(--ink) } .dim, .legend { fill: var(--dim); color: var(--dim) }
  .grid { stroke: var(--line) } .asks { fill: var(--asks) } .has { fill: var(--has) } .gives { fill: var(--gives) }
  .loses { fill: none; stroke: var(--dim); stroke-dasharray: 4 3 } .open { stroke: var(--dim); stroke-dasharray: 4 3 }
  .fault { stroke: var(--bad); stroke-dasharray: 2 3 } .fault-head { fill: var(--bad) } .fault-text { font-size: 10px }
  .bad { fill: var(--bad) } .point { fill: var(--ground); stroke: var(--ink); stroke-width: 1.5 }
  .number { font-size: 10px; text-anchor: middle } .box { display: inline-block; width: .8em; height: .8em;
  margin: 0 .35em 0 1.1em; border-radius: 2px }
</style>
<h1>$title</h1>
<p>$what</p>
<p class="legend"><i class="box" style="background: var(--asks); margin-left: 0"></i>asks for a turn
<i class="box" style="background: var(--has)"></i>has it
<i class="box" style="background: var(--gives)"></i>gives it back
<i class="box" style="background: var(--bad)"></i>has no place in any order
<span style="margin-left: 1.1em; color: var(--bad)">▼</span> was done to the system
<span style="margin-left: 1.1em">① …</span> the order found, up to there. Point at a bar for its times.</p>
<figure>$picture</figure>
</html>
""")


def draw(operations: Sequence[Operation], verdict: Verdict, group: str, marks: Sequence[Mark] = ()) -> str:
    """The page. ``marks``: what was done to the system meanwhile."""
    stuck, state = verdict.stuck, verdict.state
    if stuck is None:
        title, what = f"The history of group {group}", f"It is that of a lock: {verdict}."
    else:
        title = f"The history of group {group} is not that of a lock"
        what = (
            f"The {stuck} took effect between its begin and its end in no order of these calls. In the one that gets "
            f"furthest, {len(verdict.order)} calls have their place before it, and then {state}."
        )
    picture = _Picture(operations, verdict, marks).svg()
    return _PAGE.substitute(title=escape(title), what=escape(what), picture=picture)


class _Picture:
    """The part of the history that is around what has no place; all of it, where everything has one."""

    def __init__(self, operations: Sequence[Operation], verdict: Verdict, marks: Sequence[Mark]) -> None:
        self.stuck = verdict.stuck
        moments: list[tuple[Operation, int]] = []
        now = 0
        for one in verdict.order:
            now = max(now, one.begin)
            moments.append((one, now))
        first = max(len(moments) - SHOWN, 0) if self.stuck else 0
        self.moments = list(enumerate(moments, 1))[first:]
        begins = [one.begin if first == 0 else at for _, (one, at) in self.moments]
        ends = [one.end or one.begin for one in (operations if self.stuck is None else (self.stuck,))]
        begins += [self.stuck.begin] if self.stuck else []
        begin, end = min(begins, default=0), max((*begins, *ends), default=0)
        spare = max((end - begin) // 12, 1)
        self.begin, self.end = begin - spare, end + spare
        self.width = _WIDTH if self.stuck else max(_WIDTH, round((end - begin) / 1e9 * _PIXELS_A_SECOND))
        self.marks = [one for one in marks if self.begin <= one.at <= self.end]
        shown = [one for one in operations if one.begin <= self.end and (one.end is None or one.end >= self.begin)]
        self.calls = sorted(shown, key=lambda one: one.begin)
        self.held = [span for span in _held(operations) if span[1] <= self.end and span[2] >= self.begin]
        clients = [one.client for one in self.calls] + [acquire.client for acquire, _, _ in self.held]
        self.rows = {client: place for place, client in enumerate(dict.fromkeys(clients))}

    def svg(self) -> str:
        height = _TOP + _ROW * len(self.rows) + 10
        parts = [f'<svg width="{_LEFT + self.width + 40}" height="{height}" role="img">', *self._grid(height)]
        parts += [part for place, one in enumerate(self.marks) for part in self._mark(one, place, height)]
        for acquire, begin, end in self.held:
            said = f"{acquire.client} has token {acquire.token}"
            parts.append(self._bar(acquire.client, begin, end, "has", said, thin=True))
        parts += [self._call(one) for one in self.calls]
        for number, (one, at) in self.moments:
            x, y = self._x(at), self._y(one.client) + _BAR + 12
            parts.append(f'<circle class="point" cx="{x:.1f}" cy="{y}" r="8"/>')
            parts.append(f'<text class="number" x="{x:.1f}" y="{y + 3.5}">{number}</text>')
        return "\n".join([*parts, "</svg>"])

    def _grid(self, height: int) -> list[str]:
        parts = []
        ticks = _TICKS * max(self.width // _WIDTH, 1)
        for tick in range(ticks + 1):
            at = self.begin + (self.end - self.begin) * tick // ticks
            x = self._x(at)
            parts.append(f'<line class="grid" x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{height}"/>')
            ms = (at - self.begin) / 1e6
            said = f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"
            parts.append(f'<text class="dim" x="{x:.1f}" y="16" text-anchor="middle">{said}</text>')
        names = (f'<text x="0" y="{self._y(client) + 13}">{escape(client)}</text>' for client in self.rows)
        return [*parts, *names]

    def _mark(self, one: Mark, place: int, height: int) -> list[str]:
        """A line through all rows. Names are staggered, since faults and their ends come close together."""
        x, y = self._x(one.at), 34 + place % 2 * 12
        said = f"{one.what}: at {(one.at - self.begin) / 1e6:,.3f} ms"
        return [
            f'<line class="fault" x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{height}"/>',
            f'<path class="fault-head" d="M{x - 4:.1f} {y - 6}h8l-4 6z"><title>{escape(said)}</title></path>',
            f'<text class="fault-text" x="{x + 6:.1f}" y="{y}">{escape(one.what)}</text>',
        ]

    def _call(self, one: Operation) -> str:
        kind = {Kind.ACQUIRE: "asks", Kind.YIELD: "gives", Kind.LOSE: "loses"}[one.kind]
        if one == self.stuck:
            kind = "bad"
        elif one.end is None:
            kind += " open"
        end = "never answered" if one.end is None else f"until {(one.end - self.begin) / 1e6:,.3f} ms"
        said = f"{one}: from {(one.begin - self.begin) / 1e6:,.3f} ms {end}"
        return self._bar(one.client, one.begin, self.end if one.end is None else one.end, kind, said)

    def _bar(self, client: str, begin: int, end: int, kind: str, said: str, *, thin: bool = False) -> str:
        left, right = self._x(max(begin, self.begin)), self._x(min(end, self.end))
        y, height = (self._y(client) + 5, _BAR - 10) if thin else (self._y(client), _BAR)
        return (
            f'<rect class="{kind}" x="{left:.1f}" y="{y}" width="{max(right - left, 2):.1f}" height="{height}" rx="2">'
            f"<title>{escape(said)}</title></rect>"
        )

    def _x(self, at: int) -> float:
        return _LEFT + self.width * (at - self.begin) / (self.end - self.begin)

    def _y(self, client: str) -> int:
        return _TOP + _ROW * self.rows[client]


def _held(operations: Sequence[Operation]) -> list[tuple[Operation, int, int]]:
    """For each grant when its client had the turn by its own account; to the end of all, if it never gave it back."""
    given = {(one.client, one.token): one.begin for one in operations if one.kind is Kind.YIELD}
    last = max((one.end or one.begin for one in operations), default=0)
    return [
        (one, one.end, given.get((one.client, one.token), last))
        for one in operations
        if one.kind is Kind.ACQUIRE and one.end is not None
    ]
