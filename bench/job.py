# SPDX-License-Identifier: Apache-2.0
"""A job that uses the library's public API, ``python -m bench.job --endpoint … --job … --group …``."""

from __future__ import annotations

import argparse

import tsclient as ts
from bench.commands import follow

_WITHIN = 600.0


class Job:
    """See `bench.commands.Contender`."""

    def __init__(self, endpoints: tuple[str, ...], job: str, group: str, ttl: float) -> None:
        self._client = ts.connect(endpoints, job=job, ttl=ttl)
        self._group = group
        self._turn: ts.Turn | None = None

    def acquire(self, queued: bool) -> None:
        told = not queued

        def progress(_: ts.Progress) -> None:
            nonlocal told
            if not told:
                told = True
                print("queued", flush=True)

        self._turn = self._client.acquire(self._group, timeout=_WITHIN, on_progress=progress if queued else None)

    def yield_(self) -> None:
        assert self._turn is not None
        self._turn.yield_()

    def close(self) -> None:
        self._client.close()


def main() -> None:
    """Follow what the standard input says, to its end."""
    parser = argparse.ArgumentParser(prog="python -m bench.job")
    parser.add_argument("--endpoint", required=True, help="one or more, with commas between them")
    parser.add_argument("--job", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--ttl", type=float, default=60.0)
    arguments = parser.parse_args()
    endpoints = tuple(arguments.endpoint.split(","))
    follow(Job(endpoints, arguments.job, arguments.group, arguments.ttl))


if __name__ == "__main__":
    main()
