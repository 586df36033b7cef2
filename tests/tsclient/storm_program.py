# SPDX-License-Identifier: Apache-2.0
"""64 threads and 64 asyncio tasks of one process take turns; what came of it is the last line, in JSON.

`storm_program.py TURNS`: each takes so many, and more until a line on the standard input says that it is enough.
Who meets anything but an error of the library's own does not end in order.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import tsclient
import tsclient.aio

WORKERS = 64
JOBS = 4  # of the threads, and as many of the tasks: those of one job queue in the client


def main() -> None:
    turns, outcomes, lock = int(sys.argv[1]), Counter[str](), threading.Lock()
    enough, done = threading.Event(), Counter[str]()
    tsclient.connect(connect_timeout=60).close()  # what the library keeps for the next session is there from now on
    began = files()

    def note(what: str) -> None:
        with lock:
            outcomes[what] += 1

    def numbers() -> Iterator[int]:
        return itertools.takewhile(lambda number: number < turns or not enough.is_set(), itertools.count())

    def thread(client: tsclient.Client, number: int) -> None:
        for _ in numbers():
            try:
                with client.accelerators("demo", timeout=300, job=f"thread-{number % JOBS}") as turn:
                    turn.check()
            except tsclient.TimesliceError as error:
                note(type(error).__name__)
            else:
                note("turn")
        with lock:
            done["threads"] += 1

    async def task(client: tsclient.aio.Client, number: int) -> None:
        for _ in numbers():
            try:
                async with client.accelerators("demo", timeout=300, job=f"task-{number % JOBS}") as turn:
                    turn.check()
            except tsclient.TimesliceError as error:
                note(type(error).__name__)
            else:
                note("turn")
        done["tasks"] += 1

    async def tasks(client: tsclient.aio.Client) -> None:
        await asyncio.gather(*(task(client, number) for number in range(WORKERS)))

    async def run() -> None:
        async with await tsclient.aio.connect(connect_timeout=60) as client:
            await tasks(client)

    with tsclient.connect(connect_timeout=60) as client:
        print("ready", flush=True)
        threading.Thread(target=lambda: (sys.stdin.readline(), enough.set()), daemon=True).start()
        threads = [threading.Thread(target=thread, args=(client, number)) for number in range(WORKERS)]
        for each in threads:
            each.start()
        asyncio.run(run())
        for each in threads:
            each.join()
    print(json.dumps({"outcomes": outcomes, "done": done, "began": began, "ended": files()}), flush=True)
    sys.stdin.readline()


def files() -> int:
    """How many are open."""
    return len(list(Path("/proc/self/fd").iterdir()))


if __name__ == "__main__":
    main()
