# SPDX-License-Identifier: Apache-2.0
"""A session driven by hand: what it sends and tells, as short words that tests compare."""

from __future__ import annotations

from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import records_pb2
from tsclient.news import Ended, Failed, GivenBack, Granted, Lost, Moved, Opened, Withdrawn
from tsclient.session import Session
from tsclient.session_records import HangUp, Output, Send
from tsclient.want import Want

TTL = 9.0  # so that a beat is due every 3 s
PROOF = TTL * 0.99


class DrivenSession:
    """Time is `now`, set by the test. Each method returns the words for what came out."""

    def __init__(self) -> None:
        self.now = 100.0
        self.may_beat = True
        self.session = self._new()
        self.sent: list[pb.SessionRequest] = []
        self.outputs: list[Output] = []

    def _new(self) -> Session:
        return Session(records_pb2.Process(boot_id="b", pid=1, start_time=1), TTL, lambda: self.may_beat)

    def hand_over(self, proof: float) -> None:
        """Another process goes on with the session."""
        saved = self.session.save()
        self.session = self._new()
        self.session.go_on(saved, proof)

    # ------------------------------------------------------------ of the user

    def acquire(self, job: str = "a", group: str = "g", priority: int = 0, *others: str) -> tuple[int, list[str]]:
        key, outputs = self.session.acquire(self.now, Want(job, (group, *others), priority))
        return key, self._words(outputs)

    def give_up(self, key: int) -> list[str]:
        return self._words(self.session.give_up(self.now, key))

    def yield_(self, key: int) -> list[str]:
        return self._words(self.session.yield_(self.now, key))

    def noticed(self, key: int) -> list[str]:
        return self._words(self.session.noticed(self.now, key))

    def close(self) -> list[str]:
        return self._words(self.session.close(self.now))

    # ------------------------------------------------------------ of the stream and time

    def connect(self) -> list[str]:
        return self._words(self.session.connected(self.now))

    def disconnect(self, error: Exception) -> list[str]:
        return self._words(self.session.disconnected(self.now, error))  # type: ignore[arg-type]

    def tick(self, seconds: float = 0.0) -> list[str]:
        self.now += seconds
        return self._words(self.session.tick(self.now))

    def event(self, **event: object) -> list[str]:
        return self._words(self.session.event(self.now, pb.SessionEvent(**event)))  # type: ignore[arg-type]

    def opened(self, resumed: bool = False) -> list[str]:
        secret = "" if resumed else "secret"
        return self.event(opened=pb.Opened(session="s1", secret=secret, ttl_ms=int(TTL * 1000), resumed=resumed))

    def confirm(self, number: int | None = None) -> list[str]:
        """The answer to a beat; None: to the last one."""
        beats = [request.beat.number for request in self.sent if request.HasField("beat")]
        return self.event(beat=pb.BeatConfirmed(number=number or beats[-1], ttl_ms=int(TTL * 1000)))

    def granted(self, sequence: int, token: int = 7, *groups: str) -> list[str]:
        """In "g", or in these groups with tokens from this one on."""
        grants = [pb.GroupGrant(group=group, token=token + n) for n, group in enumerate(groups or ("g",))]
        return self.event(granted=pb.Granted(sequence=sequence, grants=grants))

    # ------------------------------------------------------------ whole stretches

    def start(self) -> None:
        """Open, with the first beat confirmed."""
        self.connect()
        self.opened()
        self.confirm()

    def hold(self) -> int:
        """Open and holding a turn with token 7; its key."""
        self.start()
        key, _ = self.acquire()
        self.granted(self.last_sequence())
        return key

    def last_sequence(self) -> int:
        return max(request.acquire.sequence for request in self.sent if request.HasField("acquire"))

    def last(self, kind: str) -> object:
        """The body of the last request of that kind."""
        return next(getattr(r, kind) for r in reversed(self.sent) if r.HasField(kind))  # type: ignore[arg-type]

    def _words(self, outputs: list[Output]) -> list[str]:
        self.outputs += outputs
        self.sent += [output.request for output in outputs if isinstance(output, Send)]
        return [_word(output) for output in outputs]


def _word(output: Output) -> str:
    match output:
        case Send(request=request):
            kind = str(request.WhichOneof("request"))
            sequence = getattr(getattr(request, kind), "sequence", None)
            return f"send {kind}" if sequence is None else f"send {kind} {sequence}"
        case HangUp():
            return "hang up"
        case Opened():
            return "opened"
        case Ended(error=error):
            return f"ended {error.reason}" if error else "ended"
        case Granted(key=key):
            return f"granted {key}"
        case Failed(key=key, error=error):
            return f"failed {key} {error.reason}"
        case GivenBack(key=key, waiters=waiters):
            return f"given back {key}" if waiters is None else f"given back {key}, {waiters} wait"
        case Withdrawn(key=key):
            return f"withdrawn {key}"
        case Lost(key=key, error=error):
            return f"lost {key} {error.reason}"
        case Moved(key=key, progress=progress):
            return f"moved {key} {progress}"
