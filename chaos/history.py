# SPDX-License-Identifier: Apache-2.0
"""The history: each record of each group's turn, in order, as etcd had it.

``python -m chaos.history --etcd H:P --out FILE`` records, as a process of its own: what it records is not slowed
by what is tested. `read` returns it. A JSON object a line: ``revision``, ``mono`` (ns of CLOCK_MONOTONIC when it
was seen), ``group``, ``turn`` (the record as it is in etcd; null: deleted).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from ledger.codec import decode
from ledger.etcd import EtcdClient, EventType, KeyValue
from ledger.keys import DEFAULT_PREFIX, Keys, Kind
from ledger.records import Turn


@dataclass(frozen=True, slots=True)
class Recorded:
    """A turn as written at ``revision``; seen at ``mono`` (ns of CLOCK_MONOTONIC). None: it was deleted."""

    revision: int
    mono: int
    group: str
    turn: Turn | None


def read(path: Path) -> list[Recorded]:
    """What was recorded so far, oldest first. A last line that is being written is left out.

    Raises LedgerError for a record that cannot be read.
    """
    text = path.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [_recorded(json.loads(line)) for line in lines]


def _recorded(line: dict[str, object]) -> Recorded:
    turn = line["turn"]
    return Recorded(
        revision=int(str(line["revision"])),
        mono=int(str(line["mono"])),
        group=str(line["group"]),
        turn=None if turn is None else decode(Turn, str(turn).encode()),
    )


class Recorder:
    """Writes turns to a file opened for appending: a line is whole or not there."""

    def __init__(self, keys: Keys, path: Path) -> None:
        self._keys = keys
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kv: KeyValue, *, deleted: bool) -> None:
        place = self._keys.place(kv.key)
        if place is None or place.kind is not Kind.TURN:
            return
        line = {
            "revision": kv.mod_revision,
            "mono": time.monotonic_ns(),
            "group": place.group,
            "turn": None if deleted else kv.value.decode(),
        }
        os.write(self._fd, (json.dumps(line, separators=(",", ":")) + "\n").encode())

    def close(self) -> None:
        os.close(self._fd)


async def record(endpoints: list[str], keys: Keys, path: Path, stop: asyncio.Event) -> None:
    """Record until ``stop``. Raises EtcdError when the watch cannot go on: a history with a hole is none."""
    recorder = Recorder(keys, path)
    prefix = (keys.prefix + "groups/").encode()
    try:
        async with EtcdClient(endpoints) as client:
            listed = await client.get_prefix(prefix)
            for kv in sorted(listed.kvs, key=lambda one: one.mod_revision):
                recorder.write(kv, deleted=False)
            start = listed.revision + 1
            async with client.watch(prefix, start, cluster_id=listed.header.cluster_id) as batches:
                print(f"history records from revision {start}", flush=True)
                stopping = asyncio.create_task(stop.wait())
                while not stopping.done():
                    batch = asyncio.ensure_future(anext(batches))
                    await asyncio.wait((batch, stopping), return_when=asyncio.FIRST_COMPLETED)
                    if batch.done():
                        for event in batch.result().events:
                            recorder.write(event.kv, deleted=event.type is not EventType.PUT)
                    else:
                        batch.cancel()
                        await asyncio.gather(batch, return_exceptions=True)
    finally:
        recorder.close()


async def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chaos.history", description="Record each turn of each group.")
    parser.add_argument("--etcd", required=True, help="host:port, several separated by commas")
    parser.add_argument("--prefix", default=DEFAULT_PREFIX, help="of the keys (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="the file to append to")
    arguments = parser.parse_args()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await record(arguments.etcd.split(","), Keys(arguments.prefix), arguments.out, stop)


if __name__ == "__main__":
    asyncio.run(_main())
