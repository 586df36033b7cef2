# SPDX-License-Identifier: Apache-2.0
"""One session at work: orders and the stream's events go into its state machine, and what comes out is carried out.

All of it runs in one event loop, wherever that is: in the helper's process, or in a thread of this one. No other
thread touches the session; a signal handler's exception (KeyboardInterrupt), which comes up in the main thread
alone, can never leave it half changed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from timeslice_proto.v1 import coordinator_pb2, records_pb2
from tsclient import news
from tsclient.clock import boottime
from tsclient.deadlines import OVER
from tsclient.entry import Entry, Saved
from tsclient.errors import ClientClosed, InternalError, TimesliceError
from tsclient.orders import Acquire, Close, GiveBack, GiveUp, Keep, Noticed, Order
from tsclient.session import Session
from tsclient.session_records import HangUp, Output, Send
from tsclient.settings import Settings
from tsclient.transport import Transport

_OfOne = TypeVar("_OfOne", bound=news.OfOne)


@dataclass(frozen=True, slots=True)
class Legacy:
    """What is left of a runner whose process has died.

    Attributes:
        names: the callers' key for each entry's own; of an entry that stands in for a lost turn, the turn's.
        orders: what the callers still want, held turns included. What is not named in there is wanted by nobody.
    """

    saved: Saved
    names: Mapping[int, int] = field(default_factory=dict)
    orders: Sequence[Order] = ()


class Runner:
    """A session with its stream and its timer.

    Args:
        process: that the session is for.
        cells: the deadlines of the turns, by slot.
        tell: called with what there is to tell, also if it is nothing, whenever the session may have changed.
        may_beat: see `Session`.
        kill: ends the process that the session is for.
        legacy: to go on with.
    """

    def __init__(
        self,
        settings: Settings,
        process: records_pb2.Process,
        cells: memoryview[float],
        tell: Callable[[list[news.News]], None],
        rng: random.Random,
        *,
        may_beat: Callable[[], bool] = lambda: True,
        kill: Callable[[], None],
        legacy: Legacy | None = None,
    ) -> None:
        self._session = Session(process, settings.ttl, may_beat)
        self._transport = Transport(settings, self, rng)
        self._cells = cells
        self._tell = tell
        self._kill = kill
        self._inner: dict[int, int] = {}  # callers' keys to the session's
        self._outer: dict[int, int] = {}
        self._slots: dict[int, int] = {}  # by the callers' keys: where deadlines go
        self._held: set[int] = set()  # callers' keys
        self._deadly: set[int] = set()  # callers' keys whose loss kills
        self._lost: set[int] = set()  # callers' keys of lost turns whose owners do not know yet
        self._unnamed: set[int] = set()  # the session's keys of what callers have forgotten since `changed` was asked
        self._legacy = legacy
        self.closing = False
        self.ended = False

    def head(self) -> tuple[str, str, float]:
        """See `Session`."""
        return self._session.head()

    def last(self) -> tuple[int, int]:
        """See `Session`."""
        return self._session.last()

    def changed(self) -> set[int]:
        """The keys of the session's entries that have come, changed or gone since this was asked last."""
        changed = self._session.changed()
        if self._unnamed:
            changed |= self._unnamed
            self._unnamed.clear()
        return changed

    def entry(self, key: int) -> tuple[int | None, Entry] | None:
        """One of the session's entries as it is, behind the callers' key for it (`Legacy.names`); None: it has gone."""
        entry = self._session.entry(key)
        if entry is None:
            return None
        return self._outer.get(key if entry.recovers is None else entry.recovers), entry

    # ------------------------------------------------------------ from the loop

    def start(self) -> None:
        """Begin to stream. To be called in the loop, once."""
        if self._legacy is not None:
            self._inherit(self._legacy)
        self._transport.start()

    def order(self, order: Order) -> None:
        """Carry it out; a fault ends the runner and is told to all who wait."""
        try:
            self._order(order)
        except Exception as error:  # noqa: BLE001 - nobody else would tell those who wait
            self.crashed(error)

    def abandon(self) -> None:
        """The process is no more: end the session, so that its turns count as lost."""
        self._do(self._session.close(boottime(), abandoned=True))

    def stop(self) -> None:
        """End the stream, whatever becomes of the session."""
        self.ended = True
        self._transport.stop()

    async def stopped(self) -> None:
        """Wait until the stream is gone."""
        await self._transport.stopped()

    # ------------------------------------------------------------ orders

    def _order(self, order: Order) -> None:
        now = boottime()
        match order:
            case Acquire(key=key):
                self._acquire(now, order)
            case GiveUp(key=key) if key in self._inner:
                self._do(self._session.give_up(now, self._inner[key]))
            case GiveUp(key=key):
                self._tell([news.Withdrawn(key)])
            case GiveBack(key=key) if key in self._inner:
                self._do(self._session.yield_(now, self._inner[key]))
            case GiveBack(key=key):
                self._tell([news.GivenBack(key, None)])
            case Noticed(key=key):
                inner = self._inner.get(key)
                if inner is not None and key in self._lost:
                    self._do(self._session.noticed(now, inner))
                    self._forget(key, inner)
                elif inner is not None:
                    # Who noticed by the deadline alone is ahead of the session, which still holds it.
                    self._do(self._session.give_up(now, inner))
            case Keep(key=key, slot=slot, kill=kill, held=held):
                self._keep(key, slot, kill=kill, held=held)
            case Close() if self.ended:
                self._tell([news.Ended(None)])
            case Close():
                self.closing = True
                self._do(self._session.close(now))

    def _acquire(self, now: float, order: Acquire) -> None:
        self._slots[order.key] = order.slot
        if order.kill:
            self._deadly.add(order.key)
        if order.key in self._inner:
            return  # said again to one that took the session over
        if self.ended:
            self._tell([news.Failed(order.key, ClientClosed("The client is closed."))])
            return
        try:
            inner, outputs = self._session.acquire(now, order.want)
        except TimesliceError as error:
            self._tell([news.Failed(order.key, error)])
            return
        self._inner[order.key], self._outer[inner] = inner, order.key
        self._do(outputs)

    def _keep(self, key: int, slot: int, *, kill: bool, held: bool) -> None:
        self._slots[key] = slot
        (self._held if held else self._lost).add(key)
        if kill:
            self._deadly.add(key)

    def _inherit(self, legacy: Legacy) -> None:
        kept = [order for order in legacy.orders if isinstance(order, Keep) and order.held]
        proof = max((self._cells[order.slot] for order in kept), default=-math.inf)
        self._session.go_on(legacy.saved, proof)
        for entry in legacy.saved.entries:
            key, inner = legacy.names.get(entry.key), entry.key if entry.recovers is None else entry.recovers
            if key is not None:
                self._inner[key], self._outer[inner] = inner, key
        named = {order.key for order in legacy.orders if not isinstance(order, Close)}
        for key, inner in tuple(self._inner.items()):
            if key not in named:
                self._do(self._session.give_up(boottime(), inner))
                self._do(self._session.noticed(boottime(), inner))
        for order in legacy.orders:
            self._order(order)

    # ------------------------------------------------------------ of the transport

    def connected(self) -> None:
        self._do(self._session.connected(boottime()))

    def disconnected(self, error: TimesliceError) -> None:
        self._tell([news.Trouble(error)])
        self._do(self._session.disconnected(boottime(), error))

    def event(self, event: coordinator_pb2.SessionEvent) -> None:
        self._do(self._session.event(boottime(), event))

    def tick(self) -> None:
        self._do(self._session.tick(boottime()))

    def crashed(self, error: Exception) -> None:
        """It cannot go on: after a fault in a step the session cannot be trusted any more."""
        for key in self._held:
            self._cells[self._slots[key]] = OVER
        self._held.clear()
        told = error if isinstance(error, TimesliceError) else InternalError(f"The client has failed: {error!r}.")
        self.stop()
        self._tell([news.Ended(told)])

    # ------------------------------------------------------------ what is to be done

    def _do(self, outputs: Sequence[Output]) -> None:
        told: list[news.News] = []
        deadly = False
        for output in outputs:
            match output:
                case Send(request=request):
                    self._transport.send(request)
                case HangUp(why=why):
                    self._transport.hang_up(why)
                case news.Opened():
                    self._transport.worked()
                    told.append(output)
                case news.Ended():
                    told.append(output)
                    self.stop()
                case news.Moved(key=inner):
                    told.append(_under(self._outer[inner], output))
                case news.Granted(key=inner):
                    self._held.add(self._outer[inner])
                    told.append(_under(self._outer[inner], output))
                case news.Lost(key=inner):
                    key = self._over(inner)
                    self._lost.add(key)
                    deadly |= key in self._deadly
                    told.append(_under(key, output))
                case news.Failed(key=inner) | news.GivenBack(key=inner) | news.Withdrawn(key=inner):
                    if inner in self._outer:
                        key = self._over(inner)
                        if key not in self._lost:
                            self._forget(key, inner)
                        told.append(_under(key, output))
        for key in self._held:
            self._cells[self._slots[key]] = self._session.proof
        self._transport.arm(self._session.next_at())
        self._tell(told)
        if deadly:
            self._kill()

    def _over(self, inner: int) -> int:
        """Its turn is over: nobody may believe in it any more. Returns the callers' key."""
        key = self._outer[inner]
        if key in self._held:
            self._held.remove(key)
            self._cells[self._slots[key]] = OVER
        return key

    def _forget(self, key: int, inner: int) -> None:
        self._inner.pop(key, None)
        self._outer.pop(inner, None)
        self._unnamed.add(inner)
        self._slots.pop(key, None)
        self._deadly.discard(key)
        self._lost.discard(key)


def _under(key: int, told: _OfOne) -> _OfOne:
    """The news, under the callers' key; it is the session's own as a rule."""
    return told if told.key == key else replace(told, key=key)
