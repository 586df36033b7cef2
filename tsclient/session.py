# SPDX-License-Identifier: Apache-2.0
"""The client's side of a session, as a state machine: events, calls and time in; requests and results out.

It does no input or output and reads no clock: `now` comes with each call, in seconds of a clock that counts
time asleep. The rules that it keeps:

* A beat proves the lease only if it is answered, and only from the moment when it was *sent*, for the TTL in
  the answer less a margin for clocks that run at different rates. So the holder's deadline comes before the
  lease can end. Past it every held turn is lost, for good, even if a later beat is confirmed.
* The deadline binds holders alone. Who waits goes on waiting, on a new session if need be.
* Until the deadline nobody hears of a broken stream: it is resumed, and what was unanswered is sent again.
* One ticket for a job in a group: acquires of this process that would share one wait for each other in here.
* Nothing is left behind: what is no longer wanted is cancelled until the server says that it is gone; and
  each beat names all that is wanted, so that the server can drop the rest.
* A lost turn queues again by itself, at the tail, until its owner has noticed: if the owner is blocked in a
  call on a device that it was taken off, only a new grant can wake it up. So a refusal does not end that: what it
  was refused for (a quarantine, an eviction, a group that is being made anew) an operator can put right.

* Whether a beat may be sent is asked before each one: a helper does not speak for a process that is stopped.
  While it may not, nothing else is said either. A turn would be for nobody; and to give back one that was lost
  would say that its holder is done, while it only stands still: it goes with the session instead.

Not thread-safe; `tsclient.runner` calls it from one event loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace

from timeslice_proto.v1 import coordinator_pb2, records_pb2
from tsclient import errors
from tsclient import session_messages as messages
from tsclient.endpoints import REFUSALS, no_coordinator
from tsclient.entry import Entry, Saved, Stage
from tsclient.errors import TimesliceError, from_reason
from tsclient.news import Ended, Failed, GivenBack, Granted, Lost, Moved, Opened, Withdrawn
from tsclient.progress import Progress, Queued
from tsclient.session_records import HangUp, Output, Send
from tsclient.want import Want

# Part of the TTL that is not believed in, because this clock and etcd's may run at different rates. NTP slews
# by at most 500 ppm, a bad quartz drifts by 100: one in a hundred is far more than both.
RATE_MARGIN = 0.01
BEATS_IN_TTL = 3
LOOKS_IN_BEAT = 4  # while no beat may be sent: how often in a beat's interval it is asked again
OPEN_GREETING = 10.0  # s allowed for the answer to an open: nothing is at stake yet
RESUME_GREETING_MIN = 1.0  # s allowed for the answer to a resume, if a beat's interval is shorter
RETRY_AFTER = 0.5  # s; after a refusal that says nothing against the request
STAND_IN_AGAIN = 5.0  # s; until a lost turn that was refused its place asks for another

_ASKING = (Stage.WAITING, Stage.YIELDING, Stage.CANCELLING)
_TIMED = (Stage.HELD, Stage.YIELDING)  # not beyond the proof


class Session:
    """See the module. Each method returns what is to be done, in order.

    Args:
        process: of this client.
        ttl: wanted, in seconds; the server's answer counts.
        may_beat: asked right before each beat; while it says no, none is sent.
    """

    def __init__(self, process: records_pb2.Process, ttl: float, may_beat: Callable[[], bool] = lambda: True) -> None:
        self._process = process
        self._may_beat = may_beat
        self._wanted_ttl = ttl
        self._ttl = ttl
        self._id = ""
        self._secret = ""
        self._streaming = False  # a stream is up
        self._ready = False  # … and the server has greeted
        self._greet_by = math.inf
        self._closing = False
        self._abandoned = False
        self._ended: Ended | None = None
        self._asleep = False  # nobody is there to use a turn: none is asked for
        self._proof = -math.inf
        self._beats: dict[int, float] = {}  # number to when it was sent, on this stream, unanswered
        self._beat_number = 0
        self._beat_at = math.inf
        self._last_key = 0
        self._last_sequence = 0
        self._entries: dict[int, Entry] = {}  # by key, so in the order of the calls
        self._changed: set[int] = set()  # keys; since `changed` was asked last
        self._out: list[Output] = []

    # ------------------------------------------------------------ what may be read

    @property
    def proof(self) -> float:
        """Until when the lease is proved; a held turn is lost by itself after it."""
        return self._proof

    @property
    def ended(self) -> Ended | None:
        return self._ended

    def next_at(self) -> float:
        """When `tick` is wanted at the latest; infinite if nothing waits for time to pass."""
        if self._ended is not None:
            return math.inf
        at = min(self._greet_by, self._beat_at) if self._ready else self._greet_by
        may_ask = self._ready and not self._asleep
        for entry in self._entries.values():
            if may_ask and not entry.sent and (entry.stage in _ASKING or self._is_put_off(entry)):
                at = min(at, entry.not_before)
            if entry.stage in _TIMED:
                at = min(at, self._proof)
        return at

    # ------------------------------------------------------------ from one process to another

    @property
    def entries(self) -> Collection[Entry]:
        """All acquires and turns, as they are on the present stream."""
        return self._entries.values()

    def entry(self, key: int) -> Entry | None:
        """One of them."""
        return self._entries.get(key)

    def changed(self) -> set[int]:
        """The keys of those that have come, changed or gone since this was asked last."""
        changed, self._changed = self._changed, set()
        return changed

    def head(self) -> tuple[str, str, float]:
        """The beginning of `save`: the session's id and secret, and its TTL in seconds."""
        return self._id, self._secret, self._ttl

    def last(self) -> tuple[int, int]:
        """What follows in `save`: the last key and the last sequence number that were given out."""
        return self._last_key, self._last_sequence

    def save(self) -> Saved:
        """What another process needs in order to go on with this session."""
        return Saved(*self.head(), *self.last(), tuple(entry.saved() for entry in self.entries))

    def go_on(self, saved: Saved, proof: float) -> None:
        """Go on with another's session, before anything else is done with this one.

        Args:
            proof: until when its held turns are proved.
        """
        self._id, self._secret, self._ttl = saved.session, saved.secret, saved.ttl
        self._last_key, self._last_sequence, self._proof = saved.last_key, saved.last_sequence, proof
        # Nobody has noted until when a stand-in is proved; the next beat shows it.
        self._entries = {
            entry.key: replace(entry, stage=Stage.UNPROVEN)
            if entry.stage is Stage.HELD and entry.recovers is not None
            else entry
            for entry in saved.entries
        }
        self._changed.update(self._entries)

    # ------------------------------------------------------------ calls of the user

    def acquire(self, now: float, want: Want) -> tuple[int, list[Output]]:
        """Ask for a turn. The key that is returned names the acquire, and the turn, from now on."""
        if self._ended is not None or self._closing:
            raise (self._ended and self._ended.error) or errors.ClientClosed("The client is closed.")
        overlapping = self._overlapping(want)
        for entry in overlapping:
            if entry.recovers is None:
                continue
            if entry.want != want:
                self._withdraw(entry)
                continue
            # A lost turn stands in the queue again already: its place is the caller's now.
            adopted = self._put(replace(entry, recovers=None, not_before=0.0))
            if adopted.stage is Stage.HELD:
                self._out.append(Granted(adopted.key, adopted.grants))
            return adopted.key, self._done(now)
        if overlapping or self._asleep:
            entry = self._add(want)
        else:  # as `_done` would have it, in one step
            self._last_key, self._last_sequence, may_ask = self._last_key + 1, self._last_sequence + 1, self._may_ask()
            entry = Entry(self._last_key, want, Stage.WAITING, self._last_sequence, sent=may_ask, known=may_ask)
            self._ask(entry)
        return entry.key, self._done(now)

    def give_up(self, now: float, key: int) -> list[Output]:
        """The caller no longer wants that acquire, granted or not. `Withdrawn` follows when nothing is left."""
        entry = self._entries.get(key)
        if entry is not None:
            self._withdraw(entry)
        return self._done(now)

    def yield_(self, now: float, key: int) -> list[Output]:
        """Give back a held turn. `GivenBack`, `Lost` or `Failed` follows, at the proof's end at the latest."""
        self._lapse(now)
        entry = self._entries.get(key)
        if entry is not None and entry.stage is Stage.HELD:
            self._ask(replace(entry, stage=Stage.YIELDING, sent=self._may_ask()))
        elif entry is None or entry.stage is Stage.CANCELLING:
            self._out.append(GivenBack(key, None))
        return self._done(now)

    def noticed(self, now: float, key: int) -> list[Output]:
        """The owner of a lost turn knows of it: no need to stand in the queue for it any longer."""
        for entry in list(self._entries.values()):
            if entry.recovers == key:
                self._withdraw(entry)
        return self._done(now)

    def close(self, now: float, *, abandoned: bool = False) -> list[Output]:
        """Give everything back. `Ended` follows.

        Args:
            abandoned: the process that holds the turns is no more: they are not given back but lost.
        """
        if self._ended is not None or self._closing:
            return []
        self._closing, self._abandoned = True, abandoned
        for entry in self._entries.values():
            match entry.stage:
                case Stage.YIELDING:
                    self._out.append(GivenBack(entry.key, None))
                case Stage.CANCELLING:
                    self._out.append(Withdrawn(entry.key))
                case _ if entry.recovers is None:
                    self._out.append(Failed(entry.key, errors.ClientClosed("The client is being closed.")))
        self._remove_all()
        if self._ready:
            self._send(messages.closing(abandoned=self._abandoned))
        elif not self._id:
            self._end(None)
        return self._done(now)

    # ------------------------------------------------------------ the stream

    def connected(self, now: float) -> list[Output]:
        """A stream has been started: greet."""
        self._streaming, self._ready = True, False
        self._greet_by = now + (max(self._ttl / BEATS_IN_TTL, RESUME_GREETING_MIN) if self._id else OPEN_GREETING)
        if self._id:
            entries = list(self._entries.values())
            self._send(messages.resuming(self._id, self._secret, entries, self._last_sequence))
            for entry in entries:
                if entry.stage is Stage.WAITING:
                    self._put(replace(entry, sent=True, known=True))
        else:
            self._send(messages.opening(self._process, self._wanted_ttl))
        return self._done(now)

    def disconnected(self, now: float, error: TimesliceError) -> list[Output]:
        """The stream is over, or could not be made; `error` says why."""
        self._streaming = self._ready = False
        self._greet_by = self._beat_at = math.inf
        self._beats.clear()
        for entry in list(self._entries.values()):
            self._put(entry.off_stream())
        if isinstance(error, errors.SessionEnded):
            self._session_gone(str(error))
        elif no_coordinator(error):
            if not self._id:  # what is none says nothing about a session that is open
                self._end(error)
        elif isinstance(error, errors.InvalidRequest) or error.code in REFUSALS:
            self._end(error)
        return self._done(now)

    def event(self, now: float, event: coordinator_pb2.SessionEvent) -> list[Output]:
        """One event of the stream."""
        self._lapse(now)
        match event.WhichOneof("event"):
            case "opened":
                self._on_opened(now, event.opened)
            case "beat":
                self._on_beat(event.beat)
            case "queued":
                moved = event.queued
                self._tell(moved.sequence, Queued(moved.group, moved.position, moved.note))
            case "switching":
                self._tell(event.switching.sequence, messages.switching(event.switching))
            case "granted":
                self._on_granted(now, event.granted)
            case "refused":
                self._on_refused(now, event.refused)
            case "yielded":
                self._on_yielded(event.yielded)
            case "cancelled":
                entry = self._by_sequence(event.cancelled.sequence)
                if entry is not None and entry.stage is Stage.CANCELLING:
                    self._remove(entry)
                    self._out.append(Withdrawn(entry.key))
            case "lost":
                self._on_lost(event.lost)
            case "closed":
                self._end(None)
            case "go_away":
                self._hang_up(event.go_away.why or "the replica is leaving")
            case _:
                pass  # of a newer server: says nothing to this client
        return self._done(now)

    def tick(self, now: float) -> list[Output]:
        """Time has passed."""
        if self._ended is not None:
            return []
        self._lapse(now)
        if self._greet_by <= now:
            self._hang_up("no greeting in time")
        if self._ready and self._beat_at <= now:
            if self._beats:
                # What is left of the proof is spent on another stream rather than on hoping.
                self._hang_up("a beat is unanswered")
            else:
                self._beat(now)
        return self._done(now)

    # ------------------------------------------------------------ events

    def _on_opened(self, now: float, opened: coordinator_pb2.Opened) -> None:
        if opened.secret:
            self._id, self._secret = opened.session, opened.secret
        self._ttl = opened.ttl_ms / 1000 or self._ttl
        self._ready, self._greet_by = True, math.inf
        if self._closing:
            self._send(messages.closing(abandoned=self._abandoned))
            return
        self._beat(now)
        self._out.append(Opened())

    def _on_beat(self, beat: coordinator_pb2.BeatConfirmed) -> None:
        sent = self._beats.get(beat.number)
        if sent is None:
            return
        self._beats = {number: at for number, at in self._beats.items() if number > beat.number}
        self._ttl = beat.ttl_ms / 1000 or self._ttl
        self._proof = max(self._proof, sent + self._ttl * (1 - RATE_MARGIN))

    def _on_granted(self, now: float, granted: coordinator_pb2.Granted) -> None:
        entry = self._by_sequence(granted.sequence)
        if entry is None or entry.stage is not Stage.WAITING:
            return  # cancelled meanwhile, or told again after a resume
        if now < self._proof:
            self._hold(replace(entry, stage=Stage.HELD, grants=messages.grants(granted)))
        else:
            self._put(replace(entry, stage=Stage.UNPROVEN, grants=messages.grants(granted)))

    def _hold(self, held: Entry) -> None:
        """It is granted, and the lease is proved."""
        self._put(held)
        if held.recovers is None:
            self._out.append(Granted(held.key, held.grants))

    def _on_refused(self, now: float, refused: coordinator_pb2.Refused) -> None:
        entry = self._by_sequence(refused.sequence)
        if entry is None or entry.stage not in (Stage.WAITING, Stage.YIELDING):
            return
        error = from_reason(refused.reason, refused.message, metadata=refused.metadata)
        if isinstance(error, errors.Unavailable):
            self._put(replace(entry, sent=False, not_before=now + RETRY_AFTER))
            return
        if entry.stage is Stage.YIELDING and entry.unanswered and isinstance(error, errors.StaleToken):
            # The yield was carried out, its answer did not come, and others have had their turns since.
            self._on_given_back(entry, refused.metadata.get("group") or entry.grants[0].group, 0)
            return
        if entry.stage is Stage.YIELDING:
            group = refused.metadata.get("group", "")
            error = messages.lost_error(entry, f"it was over before it was given back: {error.message}", group=group)
        if entry.recovers is not None:
            self._put(Entry(entry.key, entry.want, recovers=entry.recovers, not_before=now + STAND_IN_AGAIN))
            return
        if len(entry.grants) > 1:
            self._withdraw(entry)  # it may still have the turns of its other groups
        else:
            self._remove(entry)
        self._out.append(Failed(entry.key, error))

    def _on_yielded(self, yielded: coordinator_pb2.Yielded) -> None:
        entry = self._by_sequence(yielded.sequence)
        if entry is not None and entry.stage is Stage.YIELDING:
            self._on_given_back(entry, yielded.group, yielded.waiters)

    def _on_given_back(self, entry: Entry, group: str, waiting: int) -> None:
        returned = (*entry.returned, group)
        waiters = entry.waiters + waiting
        if any(grant.group not in returned for grant in entry.grants):
            self._put(replace(entry, returned=returned, waiters=waiters))
            return
        self._remove(entry)
        self._out.append(GivenBack(entry.key, waiters))

    def _on_lost(self, lost: coordinator_pb2.Lost) -> None:
        if lost.sequence == 0:
            self._session_gone(lost.message or "its lease has ended")
            self._hang_up("the session is over")
            return
        entry = self._by_sequence(lost.sequence)
        if entry is None:
            return
        match entry.stage:
            case Stage.HELD:
                alone = len(entry.want.groups) == 1
                self._lose(entry, lost.message or lost.reason, reason=lost.reason, group=lost.group, gone=alone)
            case Stage.WAITING | Stage.UNPROVEN if len(entry.want.groups) > 1:
                if entry.recovers is None:
                    self._out.append(
                        Failed(entry.key, messages.lost_error(entry, lost.message, lost.reason, lost.group))
                    )
                self._withdraw(entry)  # what it has of its other groups
            case Stage.WAITING | Stage.UNPROVEN:
                self._again(entry)
            case Stage.CANCELLING if len(entry.want.groups) > 1:
                pass  # the cancel's own answer says when nothing is left
            case Stage.CANCELLING:
                self._remove(entry)
                self._out.append(Withdrawn(entry.key))
            case _:
                pass  # the yield's own answer says how it ended

    # ------------------------------------------------------------ endings

    def _lapse(self, now: float) -> None:
        """Past the proof's end every held turn is lost, before anything newer is looked at."""
        if now < self._proof:
            return
        for entry in list(self._entries.values()):
            if entry.stage is Stage.HELD:
                self._lose(entry, "no heartbeat was confirmed in time, so its lease may have ended", gone=False)
            elif entry.stage is Stage.YIELDING:
                # It was given back while the lease was proved; what is left of it goes by cancel or expiry.
                self._out.append(GivenBack(entry.key, None))
                self._put(replace(entry, stage=Stage.CANCELLING, sent=False))

    def _session_gone(self, why: str) -> None:
        self._id = self._secret = ""
        self._ready, self._beat_at, self._proof = False, math.inf, -math.inf
        self._beats.clear()
        for entry in list(self._entries.values()):
            match entry.stage:
                case Stage.WAITING | Stage.UNPROVEN:
                    self._again(entry)
                case Stage.HELD:
                    self._lose(entry, f"its session is over: {why}", gone=True)
                case Stage.YIELDING:
                    self._remove(entry)
                    self._out.append(GivenBack(entry.key, None))
                case Stage.CANCELLING:
                    self._remove(entry)
                    self._out.append(Withdrawn(entry.key))
        if self._closing:
            self._end(None)

    def _lose(self, entry: Entry, why: str, *, gone: bool, reason: str = "", group: str = "") -> None:
        if entry.recovers is None:
            self._out.append(Lost(entry.key, messages.lost_error(entry, why, reason, group)))
        self._remove(entry) if gone else self._withdraw(entry)
        if not any(e.stage is not Stage.CANCELLING for e in self._overlapping(entry.want)):
            owner = entry.key if entry.recovers is None else entry.recovers
            self._add(entry.want, recovers=owner)

    def _withdraw(self, entry: Entry) -> None:
        """Let go of an acquire, by way of a cancel if the server may know of it."""
        if entry.stage is Stage.CANCELLING:
            return
        if entry.known:
            self._put(replace(entry, stage=Stage.CANCELLING, sent=False, not_before=0.0, recovers=None))
        else:
            self._remove(entry)
            self._out.append(Withdrawn(entry.key))

    def _again(self, entry: Entry) -> None:
        """Its ticket is gone and it is still wanted: it asks again, under a new number."""
        self._put(Entry(entry.key, entry.want, recovers=entry.recovers))

    def _end(self, error: TimesliceError | None) -> None:
        cause = error or errors.ClientClosed("The client is closed.")
        for entry in self._entries.values():
            if entry.stage is Stage.HELD and entry.recovers is None:
                self._out.append(
                    Lost(entry.key, messages.lost_error(entry, f"its session cannot go on: {cause.message}"))
                )
            elif entry.stage is Stage.CANCELLING:
                self._out.append(Withdrawn(entry.key))
            elif entry.recovers is None:
                self._out.append(Failed(entry.key, cause))
        self._remove_all()
        self._ready, self._beat_at, self._greet_by, self._proof = False, math.inf, math.inf, -math.inf
        self._ended = Ended(error)
        self._out.append(self._ended)

    def _hang_up(self, why: str) -> None:
        if self._streaming:
            self._streaming = self._ready = False
            self._greet_by = self._beat_at = math.inf
            self._out.append(HangUp(why))

    # ------------------------------------------------------------ what follows from the state

    def _done(self, now: float) -> list[Output]:
        """Take the steps that the state now allows, and hand over what there is to do."""
        may_ask = self._may_ask()
        for entry in list(self._entries.values()):
            match entry.stage:
                case Stage.LOCAL if self._is_first(entry) and not self._asleep and entry.not_before <= now:
                    self._last_sequence += 1
                    waiting = replace(
                        entry, stage=Stage.WAITING, sequence=self._last_sequence, sent=may_ask, known=may_ask
                    )
                    self._ask(waiting)
                case Stage.UNPROVEN if now < self._proof:
                    self._hold(replace(entry, stage=Stage.HELD))
                case stage if stage in _ASKING and not entry.sent and may_ask and entry.not_before <= now:
                    self._ask(replace(entry, sent=True, known=True))
        out, self._out = self._out, []
        return out

    def _may_ask(self) -> bool:
        return self._ready and not self._closing and not self._asleep

    def _ask(self, entry: Entry) -> None:
        """Put it, and send what it asks for if it says that this is sent."""
        self._put(entry)
        if entry.sent:
            self._out += map(Send, messages.asking(entry))

    def _beat(self, now: float) -> None:
        self._asleep = not self._may_beat()
        if self._asleep:
            self._beat_at = now + self._ttl / BEATS_IN_TTL / LOOKS_IN_BEAT
            return
        self._beat_number += 1
        self._beats[self._beat_number] = now
        self._beat_at = now + self._ttl / BEATS_IN_TTL
        self._send(messages.beating(self._beat_number, self._entries.values(), self._last_sequence))

    def _send(self, request: coordinator_pb2.SessionRequest) -> None:
        self._out.append(Send(request))

    # ------------------------------------------------------------ entries

    def _add(self, want: Want, recovers: int | None = None) -> Entry:
        self._last_key += 1
        return self._put(Entry(self._last_key, want, recovers=recovers))

    def _put(self, entry: Entry) -> Entry:
        self._entries[entry.key] = entry
        self._changed.add(entry.key)
        return entry

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.key]
        self._changed.add(entry.key)

    def _remove_all(self) -> None:
        self._changed.update(self._entries)
        self._entries.clear()

    def _by_sequence(self, sequence: int) -> Entry | None:
        return next((e for e in self._entries.values() if e.sequence == sequence), None)

    def _overlapping(self, want: Want) -> list[Entry]:
        return [e for e in self._entries.values() if e.want.overlaps(want)]

    def _is_first(self, entry: Entry) -> bool:
        return all(other.key >= entry.key for other in self._overlapping(entry.want))

    def _is_put_off(self, entry: Entry) -> bool:
        """It is for time alone that it has not been asked for."""
        return entry.stage is Stage.LOCAL and entry.not_before > 0 and self._is_first(entry)

    def _tell(self, sequence: int, progress: Progress) -> None:
        entry = self._by_sequence(sequence)
        if entry is not None and entry.stage is Stage.WAITING and entry.recovers is None:
            self._out.append(Moved(entry.key, progress))
