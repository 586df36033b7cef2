# SPDX-License-Identifier: Apache-2.0
"""A program as a user writes it; checked by mypy --strict against the installed wheel, never run."""

from __future__ import annotations

import tsclient as ts


def train(turn: ts.Turn) -> int:
    turn.check()
    return turn.token


@ts.accelerators("trainers", timeout=600)
def evaluate(model: str, *, batches: int = 1) -> float:
    return float(len(model) * batches)


def told(news: ts.Progress) -> None:
    match news:
        case ts.Queued():
            print(news.group, news.position)
        case ts.Switching():
            print(news.group, news.epoch)


def main() -> float:
    with ts.connect("coordinator-0:7400", job="example", ttl=10) as client:
        turn = client.acquire("trainers", priority=1, on_progress=told)
        waiting: int | None = turn.yield_()
        print(waiting)
    try:
        with ts.accelerators("trainers") as turn:
            train(turn)
    except ts.LockLost as lost:
        print(lost.reason, lost.next_step)
    return evaluate("model", batches=2)
