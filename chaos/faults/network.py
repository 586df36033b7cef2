# SPDX-License-Identifier: Apache-2.0
"""A network that fails between two parties, in a world that is proxied: silent, half-open, slow, cut, reset."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from chaos.apart import why_not
from chaos.faults.fault import Fault, Harm, NotPossible, Party
from chaos.proxy import CLEAR, SILENT, Condition, Link
from chaos.world import World


def between(name: str, lasts: float, harm: Callable[[Link, Random], None]) -> Fault:
    """The fault on one link: a client's to a replica, a replica's or an agent's to etcd, a member's to its peers."""

    def begin(world: World, random: Random) -> Harm:
        used = [link for link in world.links.values() if link.connections]
        if not used:
            raise NotPossible("no connection is proxied")
        link = random.choice(used)
        what = f"{name.removeprefix('net-')} between {link.ends}"
        world.mark(what)
        harm(link, random)

        def undo() -> None:
            world.mark(f"healed between {link.ends}")
            link.heal()

        return Harm(what, undo)

    return Fault(name, Party.NETWORK, lasts, begin)


def _silent(link: Link, random: Random) -> None:
    up, down = random.choice(((SILENT, SILENT), (SILENT, CLEAR), (CLEAR, SILENT)))
    link.set(up=up, down=down)


def _half_open(link: Link, random: Random) -> None:
    del random  # there is one way
    link.half_open()


def _slow(link: Link, random: Random) -> None:
    line = Condition(delay=random.uniform(0.005, 0.1), rate=random.uniform(2_000, 50_000))
    link.set(up=line, down=line)


def _cut(link: Link, random: Random) -> None:
    cut = Condition(cut_after=random.randrange(1, 2_000))
    link.set(up=cut, down=cut)


def _reset(link: Link, random: Random) -> None:
    del random  # as above
    link.reset()


def _pull(world: World, random: Random) -> Harm:
    """Pull the cable of a network namespace: packets go nowhere, those of new connections too."""
    if not world.namespaces:
        raise NotPossible(why_not() or "nothing of this world is in a network namespace")
    victim = random.choice(sorted(world.namespaces))
    namespace = world.namespaces[victim]
    world.mark(f"the cable of {victim} is pulled")
    namespace.pull()

    def undo() -> None:
        world.mark(f"the cable of {victim} is plugged in")
        namespace.plug_in()

    return Harm(f"the cable of {victim} pulled", undo)


FAULTS: tuple[Fault, ...] = (
    Fault("net-unplugged", Party.NETWORK, 5.0, _pull),
    between("net-silent", 5.0, _silent),
    between("net-half-open", 1.0, _half_open),
    between("net-slow", 4.0, _slow),
    between("net-cut", 3.0, _cut),
    between("net-reset", 0.0, _reset),
)
