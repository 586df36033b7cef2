# SPDX-License-Identifier: Apache-2.0
"""The client's session under any schedule: messages late, repeated or lost, streams that break, a client that sleeps.

What must hold whatever happens: the proof never outlasts the lease; who believes in a turn hears of the proof's end
when its time comes, and no late answer brings it back; tokens grow; and once nothing more is wanted and messages
arrive again, nothing is left on the server.
"""

from __future__ import annotations

import math

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.property.fake_coordinator import GROUP, TTL, FakeCoordinator, Stream
from timeslice_proto.v1 import records_pb2
from tsclient import errors
from tsclient.entry import Entry
from tsclient.errors import TimesliceError
from tsclient.news import Ended, Failed, GivenBack, Granted, Lost, Withdrawn
from tsclient.session import Session
from tsclient.session_records import HangUp, Output, Send
from tsclient.want import Want

SETTLED_AFTER = 400
"""Steps in which all comes to rest once nothing goes wrong any more: many times what it takes."""

TICKS = 50
"""Calls in one stretch of time, by the session's own wish: many times what it takes."""

GONE, BROKEN = errors.SessionExpired("gone"), errors.Unavailable("broken")
_CHOICE = st.integers(0, 7)


class Sessions(RuleBasedStateMachine):
    """One client with two jobs, and the streams that it has had."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.server = FakeCoordinator()
        self.awake = True
        self.session = self._new_session()
        self.stream: Stream | None = None
        self.late: list[Stream] = []  # broken ones, with what still arrives of them
        self.open_calls: dict[int, str] = {}  # by key: its job, until the caller has its answer
        self.believed: dict[int, int] = {}  # by key: the token of a turn that its owner may use
        self.tokens: list[int] = []
        self.noted: dict[int, Entry] = {}  # as the process that the helper is for has them

    def _new_session(self) -> Session:
        return Session(records_pb2.Process(boot_id="b", pid=1, start_time=1), TTL, lambda: self.awake)

    # ------------------------------------------------------------ of the users

    @rule(job=st.sampled_from("ab"))
    def acquire(self, job: str) -> None:
        """A caller that wants a turn. One whose job is asked for already stands behind that, in here."""
        before = self.session.proof
        key, outputs = self.session.acquire(self.now, Want(job, (GROUP,)))
        self.open_calls[key] = job
        self._take(outputs, before)

    @precondition(lambda self: self.open_calls.keys() - self.believed)
    @rule(choice=_CHOICE)
    def give_up(self, choice: int) -> None:
        waiting = sorted(self.open_calls.keys() - self.believed.keys())
        self._do(lambda: self.session.give_up(self.now, waiting[choice % len(waiting)]))

    @precondition(lambda self: self.believed)
    @rule(choice=_CHOICE)
    def give_back(self, choice: int) -> None:
        held = sorted(self.believed)
        key = held[choice % len(held)]
        del self.believed[key]
        self._do(lambda: self.session.yield_(self.now, key))

    # ------------------------------------------------------------ of the network

    @precondition(lambda self: self.stream is None)
    @rule()
    def connect(self) -> None:
        self.stream = Stream()
        self._do(lambda: self.session.connected(self.now))

    @precondition(lambda self: self.stream)
    @rule(arrives=st.booleans())
    def disconnect(self, arrives: bool) -> None:
        """The stream breaks. What was on its way up is lost, or arrives later; what was on its way down is lost."""
        self._break(arrives=arrives, error=BROKEN)

    @rule(steps=st.integers(1, 20), beat=st.booleans())
    def all_goes_well(self, steps: int, beat: bool) -> None:
        """For a while there is a stream, messages arrive at once, and who is the head is served."""
        for _ in range(steps):
            if self.stream is None or self.stream.down or self.server.ready(self.stream):
                self._step_quietly()
            self.server.grant(self._streams())
        if beat:
            self.time_passes(0.3)

    @precondition(lambda self: self.stream and self.server.ready(self.stream))
    @rule(choice=_CHOICE)
    def arrives(self, choice: int) -> None:
        assert self.stream is not None
        self._serve(self.stream, choice)

    @precondition(lambda self: self.late)
    @rule(choice=_CHOICE)
    def arrives_late(self, choice: int) -> None:
        stream = self.late[choice % len(self.late)]
        self._serve(stream, 0)
        if not stream.up or stream.ended:
            self.late.remove(stream)

    @precondition(lambda self: self.stream and self.stream.down)
    @rule(count=st.integers(1, 3))
    def hears(self, count: int) -> None:
        for _ in range(count):
            if self.stream is None or not self.stream.down:
                return
            event = self.stream.down.pop(0)
            self._do(lambda event=event: self.session.event(self.now, event))

    @precondition(lambda self: self.stream and len(self.stream.told) > len(self.stream.down))
    @rule(choice=_CHOICE)
    def hears_again(self, choice: int) -> None:
        """A replica repeats what it has said on this stream, as after an acquire that it was sent again."""
        assert self.stream is not None
        heard = self.stream.told[: len(self.stream.told) - len(self.stream.down)]
        again = heard[choice % len(heard)]
        if again.WhichOneof("event") not in ("opened", "lost", "closed"):
            self._do(lambda: self.session.event(self.now, again))

    # ------------------------------------------------------------ of time

    @rule(part=st.sampled_from((0.05, 0.3, 0.9)))
    def time_passes(self, part: float) -> None:
        """The client is awake: it is called at each moment that it has asked for."""
        self._sleep_until(self.now + part * TTL)

    @rule(part=st.sampled_from((0.4, 1.0, 2.5)))
    def client_sleeps(self, part: float) -> None:
        """The client's process stands still: whatever comes next comes late."""
        self.now += part * TTL

    @rule(awake=st.booleans())
    def its_process_is_stopped(self, awake: bool) -> None:
        """The helper that keeps the session lives on, and must not speak for a process that does not."""
        self.awake = awake

    @rule()
    def another_helper_goes_on(self) -> None:
        """The helper is killed, and another one takes the session over, with what its client has noted."""
        saved, proof = self.session.save(), self.session.proof
        if self.stream is not None:
            self._break(arrives=True, error=BROKEN)
            saved = self.session.save()
        self.session = self._new_session()
        self.session.go_on(saved, proof)

    # ------------------------------------------------------------ of the server

    @rule()
    def grant(self) -> None:
        self.server.grant(self._streams())

    @rule()
    def expire(self) -> None:
        self.server.expire(self.now)

    @rule()
    def evict(self) -> None:
        self.server.evict(self._streams())

    @precondition(lambda self: self.stream and self.server.ready(self.stream))
    @rule(choice=_CHOICE)
    def etcd_is_away(self, choice: int) -> None:
        assert self.stream is not None
        ready = self.server.ready(self.stream)
        place = ready[choice % len(ready)]
        match self.stream.up[place].WhichOneof("request"):
            case "acquire" | "yield":
                self.server.refuse(self.stream, place)
            case "beat":
                self.server.ignore(self.stream, place)
            case _:
                self._serve(self.stream, choice)

    # ------------------------------------------------------------ what must hold

    @invariant()
    def the_proof_never_outlasts_the_lease(self) -> None:
        if self.session.proof > -math.inf:
            ends = max(self.server.leases.values(), default=-math.inf)
            assert self.session.proof <= ends or self.now > self.session.proof

    @invariant()
    def one_turn_is_believed_in_at_a_time(self) -> None:
        """The end of one is told before the next is granted, on whatever stream."""
        assert len(self.believed) <= 1 or self.now >= self.session.proof

    @invariant()
    def what_has_changed_is_said(self) -> None:
        """Who notes the entries that are said to have changed has them all, as another helper has to know them."""
        for key in self.session.changed():
            entry = self.session.entry(key)
            if entry is None:
                self.noted.pop(key, None)
            else:
                self.noted[key] = entry.saved()
        assert self.noted == {entry.key: entry.saved() for entry in self.session.entries}

    def teardown(self) -> None:
        """Nobody wants anything any more, and messages arrive again: then nothing is left."""
        self.awake = True
        for key in sorted(self.open_calls):
            self._do(lambda key=key: self.session.give_up(self.now, key))
            self._do(lambda key=key: self.session.noticed(self.now, key))
        for key in sorted(self.believed):
            self.believed.pop(key, None)
            self._do(lambda key=key: self.session.yield_(self.now, key))
        for stream in self.late:
            while stream.up and not stream.ended:
                self._serve(stream, 0)
        for _ in range(SETTLED_AFTER):
            self._step_quietly()
        assert not self.server.queue, f"left behind: {self.server.queue}"
        assert not self.server.told_wanted, f"still named as wanted: {self.server.told_wanted}"

    # ------------------------------------------------------------ inside

    def _step_quietly(self) -> None:
        if self.stream is None:
            self.connect()
        elif self.stream.down:
            self.hears(1)
        elif self.server.ready(self.stream):
            self._serve(self.stream, 0)
        else:
            self._sleep_until(min(self.session.next_at(), self.now + TTL))
            self.server.expire(self.now)

    def _streams(self) -> list[Stream]:
        return [self.stream] if self.stream is not None else []

    def _serve(self, stream: Stream, choice: int) -> None:
        ready = self.server.ready(stream)
        self.server.serve(stream, ready[choice % len(ready)], self.now)
        if stream.ended and stream is self.stream:
            self._break(arrives=False, error=GONE)

    def _break(self, *, arrives: bool, error: TimesliceError) -> None:
        assert self.stream is not None
        if arrives and self.stream.up and self.stream.session:
            self.late.append(self.stream)
        self.stream = None
        self._do(lambda: self.session.disconnected(self.now, error))

    def _sleep_until(self, then: float) -> None:
        ticks = 0
        while (due := self.session.next_at()) <= then:
            self.now = max(self.now, due)
            self._do(lambda: self.session.tick(self.now))
            ticks += 1
            assert ticks <= TICKS, "it wants to be called again and again"
        self.now = then
        self._do(lambda: self.session.tick(self.now))
        assert not self.believed or self.now < self.session.proof, "nobody is told that the proof is over"

    def _do(self, call: object) -> None:
        before = self.session.proof
        assert callable(call)
        self._take(call(), before)

    def _take(self, outputs: list[Output], before: float) -> None:
        """Note what callers are told. ``before``: the proof when the session was called."""
        overdue = set(self.believed) if self.now >= before else set()
        hang_up = False
        for output in outputs:
            match output:
                case Send(request=request):
                    assert self.stream is not None, "something is sent while there is no stream"
                    self.stream.up.append(request)
                case HangUp():
                    hang_up = True
                case Granted(key=key, grants=(grant,)):
                    assert grant.token > max(self.tokens, default=0), "a grant with an older token"
                    assert self.now < self.session.proof, "a grant without proof"
                    self.tokens.append(grant.token)
                    self.believed[key] = grant.token
                case Lost(key=key):
                    self._over(key)
                    self._do(lambda key=key: self.session.noticed(self.now, key))
                case GivenBack(key=key) | Withdrawn(key=key) | Failed(key=key):
                    self._over(key)
                case Ended(error=error):
                    raise AssertionError(f"the session has ended by itself: {error}")
                case _:
                    pass
        risen = overdue & self.believed.keys() if self.now < self.session.proof else set()
        assert not risen, "a turn is believed in again after the end of its proof"
        if hang_up and self.stream is not None:
            self._break(arrives=True, error=BROKEN)

    def _over(self, key: int) -> None:
        self.believed.pop(key, None)
        self.open_calls.pop(key, None)


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=300, stateful_step_count=60)
