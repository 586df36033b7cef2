# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.simulation FILE …``: the first limit of a large system, by the costs in a run's JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.simulation.costs import Costs, CostsMissing, costs_from
from bench.simulation.model import simulate
from bench.simulation.sizes import Size, first_limit, loads, shards_for

_PARTS = (0.01, 0.03, 0.1, 0.3, 1.0)
_SECONDS, _WARM_UP = 150.0, 70.0
_HEAD = ("nodes", "groups", "sessions", "hand-offs/s", "beats/s", "replica", "etcd", "p50 ms", "p99 ms", "kept up")


def main() -> int:
    """The exit status: 2 where the run has not measured enough."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulation", description=__doc__)
    said = "of `python -m bench run --json FILE`; several where the parts were measured one by one"
    parser.add_argument("runs", type=Path, nargs="+", metavar="FILE", help=said)
    for field in dataclasses.fields(Size):
        kind = int if field.type == "int" else float
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default, help="%(default)s")
    arguments = parser.parse_args()
    try:
        costs = costs_from([json.loads(path.read_text(encoding="utf-8")) for path in arguments.runs])
    except CostsMissing as error:
        print(f"{', '.join(map(str, arguments.runs))}: there is no {error}", file=sys.stderr)
        return 2
    size = Size(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(Size)})
    for field in dataclasses.fields(costs):
        value = getattr(costs, field.name)
        counted = field.name in ("waiter_bytes", "writes")
        print(f"{field.name:14}" + (f"{value:10.1f}" if counted else f"{value * 1e3:10.3f} ms"))
    print("\nOne etcd, growing:\n" + "".join(f"{head:>12}" for head in _HEAD))
    for share in _PARTS:
        print(_line(size.scaled(share), costs))
    part, multiple = first_limit(size, costs)
    at = size.scaled(multiple)
    print(f"\nThe first limit is the {part}: 70 % busy at {at.groups:,} groups and {at.sessions:,} sessions.")
    print(f"\nWhat else would change it:\n{'':46}{'replica':>10}{'etcd':>10}{'limit':>10}{'at groups':>12}")
    for name, other, cost in _variants(size, costs):
        load, (part, multiple) = loads(other, cost), first_limit(other, cost)
        cells = f"{load['replica']:>10.0%}{load['etcd']:>10.0%}{part:>10}{other.scaled(multiple).groups:>12,}"
        print(f"{name:46}{cells}")
    memory = size.sessions * costs.waiter_bytes / size.replicas
    print(f"At the whole size a replica's waiting sessions take {memory / 2**30:.1f} GiB.")
    shards = shards_for(size, costs)
    print(f"\nThe whole in {shards} shards, each an etcd with {size.replicas} replicas; one of them:")
    print("".join(f"{head:>12}" for head in _HEAD))
    print(_line(size.scaled(1 / shards), costs))
    return 0


def _variants(size: Size, costs: Costs) -> Iterator[tuple[str, Size, Costs]]:
    """The whole size under one change each."""
    yield "as it is", size, costs
    yield f"{4 * size.replicas} replicas", dataclasses.replace(size, replicas=4 * size.replicas), costs
    yield "sessions of twice the time to live", dataclasses.replace(size, ttl=2 * size.ttl), costs
    unseeing = dataclasses.replace(costs, watcher=0.0)
    yield "replicas that see their own groups alone", size, unseeing
    more = dataclasses.replace(size, replicas=4 * size.replicas)
    yield f"the same, and {4 * size.replicas} replicas", more, unseeing
    halved = dataclasses.replace(costs, etcd=costs.etcd / 2, replica=costs.replica / 2, watcher=costs.watcher / 2)
    yield "hand-offs that cost replica and etcd half", size, halved


def _line(size: Size, costs: Costs) -> str:
    found, load = simulate(size, costs, seconds=_SECONDS, warm_up=_WARM_UP), loads(size, costs)
    cells = (
        *(f"{one:,}" for one in (size.nodes, size.groups, size.sessions)),
        *(f"{one:,.1f}" for one in (size.hand_offs, size.beats)),
        *(f"{load[name]:.0%}" for name in ("replica", "etcd")),
        *(f"{one * 1e3:,.1f}" if one < math.inf else "-" for one in (found.p50, found.p99)),
        f"{found.kept_up:.0%}",
    )
    return "".join(f"{cell:>12}" for cell in cells)


if __name__ == "__main__":
    sys.exit(main())
