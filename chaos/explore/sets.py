# SPDX-License-Identifier: Apache-2.0
"""The models that are searched when nothing is asked for by name. Each is searched whole."""

from __future__ import annotations

from chaos.explore.faults import LASTING
from chaos.explore.size import Size

SETS: tuple[Size, ...] = (
    Size(replicas=2, faults=(("expire", 1), ("restart", 1), ("crash", 1), ("repeat", 1)), prompt=True),
    # Clients and operators.
    Size(nodes=1, faults=(("die", 1),)),
    Size(jobs=1, nodes=1, faults=(("die", 1), ("repeat", 1))),
    Size(nodes=1, faults=(("expire", 1), ("pause", 1))),
    Size(nodes=1, faults=(("cancel", 1), ("evict", 1))),
    Size(nodes=1, faults=(("evict", 1), ("unsaved", 1))),
    Size(nodes=1, faults=(("unsaved", 1), ("pause", 1))),
    Size(nodes=1, faults=(("unfit", 1), ("pardon", 2))),
    Size(nodes=1, faults=(("restored", 1),)),
    Size(faults=(("drain", 1),)),
    Size(nodes=1, faults=(("die", 1), ("unsaved", 2), ("resist", 1)), prompt=True),
    Size(nodes=1, faults=(("expire", 1), ("fatal", 1)), prompt=True),
    Size(jobs=1, nodes=1, faults=(("die", 1), ("evict", 1)), prompt=True),
    Size(jobs=1, nodes=1, faults=(("die", 1), ("restored", 1)), prompt=True),
    # Agents.
    Size(nodes=1, faults=(("restart", 1), ("late", 1), ("refuse", 1))),
    Size(nodes=1, faults=(("refuse", 2),)),
    Size(jobs=1, nodes=1, faults=(("lapse", 1), ("repeat", 1))),
    Size(nodes=1, faults=(("restart", 1), ("ahead", 1))),
    Size(jobs=1, nodes=1, faults=(("restart", 1), ("ahead", 1), ("refuse", 1))),
    Size(jobs=1, nodes=1, faults=(("restart", 1), ("ahead", 1), ("expire", 1))),
    Size(jobs=1, nodes=1, faults=(("die", 1), ("restart", 1), ("ahead", 1)), prompt=True),
    Size(jobs=1, nodes=1, faults=(("refuse", 2), ("expire", 1))),
    Size(nodes=1, faults=(("unsure", 1), ("expire", 1))),
    Size(nodes=1, faults=(("stuck", 1), ("expire", 1))),
    Size(nodes=1, faults=(("ends", 1), ("resist", 1))),
    Size(nodes=1, faults=(("erase", 1), ("slow", 1))),
    Size(faults=(("restart", 1), ("away", 1), ("drop", 1), ("pardon", 1)), prompt=True),
    Size(jobs=1, faults=(("restart", 1), ("away", 1), ("drop", 1), ("refuse", 1)), prompt=True),
    Size(jobs=1, faults=(("restart", 1), ("away", 1), ("drop", 1), ("fatal", 1), ("wipe", 1)), prompt=True),
    Size(jobs=1, faults=(("slow", 1), ("refuse", 1)), prompt=True),
    Size(nodes=1, faults=(("expire", 1), ("resist", 1)), lasting=True),
    Size(nodes=1, faults=(("expire", 1), ("unsaved", 1)), lasting=True),
    *(Size(faults=((fault, 2),), lasting=True, prompt=True) for fault in sorted(LASTING)),
    # The group itself.
    Size(specs=((0,), (0, 1)), faults=(("respec", 1), ("taken", 1)), prompt=True),
    Size(specs=((0, 1), (1,)), faults=(("respec", 1), ("force", 1)), prompt=True),
    Size(nodes=1, specs=((0,), (0,)), faults=(("respec", 1), ("unsaved", 1))),
    Size(
        jobs=1,
        specs=((0, 1), (1,)),
        faults=(("respec", 1), ("force", 1), ("restart", 1), ("away", 1), ("drop", 1)),
        prompt=True,
    ),
    Size(nodes=1, faults=(("wipe", 1),)),
    Size(jobs=1, specs=((0, 1), (1,)), faults=(("respec", 1), ("wipe", 1)), prompt=True),
    Size(jobs=1, faults=(("delete", 1),), at_once=1),
    Size(jobs=1, faults=(("delete", 1), ("restart", 1), ("away", 1), ("drop", 1)), prompt=True),
    Size(nodes=1, faults=(("delete", 1), ("wipe", 1)), prompt=True),
    Size(nodes=1, faults=(("delete", 2), ("force", 1))),
    # Who is served next.
    Size(jobs=3, nodes=1),
    Size(nodes=1, priorities=(0, 1), aging=True),
    Size(nodes=1, priorities=(0, 1), max_hold=True),
    Size(nodes=1, several=(0,), faults=(("unsaved", 1),), lasting=True),
    Size(nodes=1, park_only=True, faults=(("expire", 1), ("resist", 1)), lasting=True),
)
"""Together they have every fault, and take every way through the decision core: `make explore` fails else."""
