# SPDX-License-Identifier: Apache-2.0
"""A watch that goes on: through the death of a member, a silent connection, a lost majority and an expired
login.

It delivers every change from its start revision on, in order, once. Where it cannot (the history is
compacted, etcd cancelled it, the cluster is another one) it raises; the caller lists again and watches from
that revision + 1. While it resumes it is merely silent: whoever must know asks `live` and `heard_at`.

One task reads the stream for as long as the watch is open, so that a caller may give up waiting for a batch
without losing it; who is at its work on each batch anyhow has it delivered by that task, which saves a task's
wake-up for each. Keep few: each watch is a stream of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from ledger.etcd import records
from ledger.etcd import rpc_pb2 as pb
from ledger.etcd.errors import (
    Closed,
    ClusterChanged,
    Compacted,
    DeadlineExceeded,
    EtcdError,
    FutureRevision,
    StaleToken,
    Unavailable,
    WatchCancelled,
    from_text,
)
from ledger.etcd.methods import WATCH
from ledger.etcd.records import Event, WatchBatch
from ledger.etcd.transport import ATTEMPT, Stream, Transport

log = logging.getLogger(__name__)

WatchStream = Stream[pb.WatchRequest, pb.WatchResponse]

_BATCHES_AHEAD = 256
"""Batches read before the caller takes them; then etcd keeps the rest."""

_LOGINS_IN_A_ROW = 3


class _NotTaken(Exception):
    """What a batch was delivered to has failed: nothing of etcd's, whatever error it is."""

    def __init__(self, why: Exception) -> None:
        super().__init__(f"a batch was not taken: {why!r}")
        self.why = why


class Watch:
    """Async context manager and iterator of `WatchBatch`. Made by `EtcdClient.watch`.

    Entering returns once a member has confirmed the watch.

    Attributes:
        live: a member has confirmed the watch and the connection to it has not failed yet. A silent
            connection fails after up to 9 s.
        breaks: how often it has stopped being live.
        heard_at: when something was last heard from etcd, by the client's clock.
        next_revision: the first revision not delivered yet; where the watch will resume.
    """

    def __init__(
        self,
        transport: Transport,
        key: bytes,
        range_end: bytes,
        start_revision: int,
        *,
        previous: bool,
        progress_notify: bool,
        cluster_id: int,
        timeout: float,
        on_close: Callable[[Watch], None],
        deliver: Callable[[WatchBatch], Awaitable[None]] | None = None,
    ) -> None:
        self.live = False
        self.breaks = 0
        self.heard_at = transport.clock()
        self.next_revision = start_revision
        self._transport = transport
        self._create = pb.WatchCreateRequest(
            key=key, range_end=range_end, prev_kv=previous, progress_notify=progress_notify, fragment=True
        )
        self._cluster_id = cluster_id
        self._timeout = timeout
        self._on_close = on_close
        self._backoff = transport.backoff()
        self._ready: asyncio.Queue[WatchBatch | EtcdError] = asyncio.Queue(_BATCHES_AHEAD)
        self._deliver = deliver or self._ready.put
        self._entered = asyncio.Event()
        self._confirmed = asyncio.Event()
        self._end: EtcdError | None = None
        self._stream: WatchStream | None = None
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="etcd watch")
        try:
            async with asyncio.timeout(self._timeout):
                await self._confirmed.wait()
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                cause = f"no member confirmed the watch in {self._timeout} s"
                raise DeadlineExceeded(cause, ambiguous=False) from None
            raise
        if self._end is not None:
            await self.close()
            raise self._end
        self._entered.set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> WatchBatch:
        """The next batch. A wait for it has no deadline of its own; giving it up loses nothing.

        Raises:
            Compacted, WatchCancelled, ClusterChanged, FutureRevision: list again.
            PermissionDenied, AuthFailed: the user may not watch this.
            Closed: the watch or its client was closed.
        """
        if self._end is not None and self._ready.empty():
            raise self._end
        item = await self._ready.get()
        if isinstance(item, EtcdError):
            raise item
        return item

    async def ended(self) -> None:
        """For who has batches delivered: wait for the end, and raise as `__anext__`, or what `deliver` has raised."""
        assert self._task is not None
        await asyncio.wait({self._task})
        if not self._task.cancelled() and isinstance(fault := self._task.exception(), _NotTaken):
            raise fault.why
        raise self._end or Closed("the watch was closed")

    async def request_progress(self) -> None:
        """Ask for a batch without events that says how far the watch is. None comes while the watch is
        catching up.

        Raises:
            Unavailable: the watch is not live at the moment.
        """
        async with self._writing:
            if self._stream is None:
                raise Unavailable("the watch is resuming", ambiguous=False)
            await self._stream.write(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))

    async def close(self) -> None:
        """End the watch here and on the server."""
        self._on_close(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._finish(Closed("the watch was closed"))

    def _finish(self, end: EtcdError) -> None:
        """Let a caller who waits, and those who come, have `end` after what is still to be delivered."""
        self._broken()
        if self._end is None:
            self._end = end
            self._confirmed.set()
            if not self._ready.full():
                self._ready.put_nowait(end)

    async def _run(self) -> None:
        logins = 0
        try:
            while True:
                try:
                    async with self._transport.stream(WATCH) as stream:
                        await self._open(stream)
                        logins = 0
                        await self._follow(stream)
                except StaleToken:
                    self._broken()
                    logins += 1
                    if logins > _LOGINS_IN_A_ROW:
                        raise
                except Unavailable as error:
                    pause = self._backoff.next_pause()
                    log.info(
                        "The watch of %r was interrupted and resumes at revision %d in %.3f s: %s",
                        self._create.key,
                        self.next_revision,
                        pause,
                        error.cause,
                    )
                    self._broken()
                    await asyncio.sleep(pause)
        except EtcdError as error:
            self._finish(error)
        except Exception as error:
            # A fault of this program must not leave the caller waiting for ever.
            self._finish(EtcdError(f"the watch failed: {error!r}"))
            raise

    def _broken(self) -> None:
        self._stream = None
        self.breaks += self.live
        self.live = False

    async def _open(self, stream: WatchStream) -> None:
        """Create the watch where the last one ended; a member that does not confirm it in time is left."""
        self._stream = None
        self._create.start_revision = self.next_revision
        self._transport.requests[WATCH.name] += 1
        try:
            async with asyncio.timeout(ATTEMPT):
                await stream.write(pb.WatchRequest(create_request=self._create))
                response = await self._read(stream)
        except TimeoutError:
            raise DeadlineExceeded(f"{stream.endpoint} did not confirm the watch", ambiguous=False) from None
        if not response.created:
            raise WatchCancelled(f"{stream.endpoint} did not answer with a watch")
        cluster_id = response.header.cluster_id
        if self._cluster_id not in (0, cluster_id):
            raise ClusterChanged(f"{stream.endpoint} is of cluster {cluster_id:x}, not {self._cluster_id:x}")
        self._cluster_id = cluster_id
        if self.next_revision > response.header.revision + 1:
            # The store was set back by a restore, or this member lags: else the watch would sleep until the
            # store has grown past the revision, and miss all before it. A list tells which it is.
            raise FutureRevision(f"{stream.endpoint} is at revision {response.header.revision} only")
        if self.next_revision == 0:
            self.next_revision = response.header.revision + 1
        self._backoff.reset()
        self._stream = stream
        self.live = True
        self._confirmed.set()

    async def _follow(self, stream: WatchStream) -> None:
        fragments: list[Event] = []
        while True:
            response = await self._read(stream)
            fragments.extend(map(records.event, response.events))
            if response.fragment:
                # The rest may be of the same revision: neither deliver nor resume in the middle of one.
                continue
            events, fragments = tuple(fragments), []
            # The header of events tells how far the store is; an earlier revision may still be under way.
            revision = events[-1].kv.mod_revision if events else response.header.revision
            self.next_revision = max(self.next_revision, revision + 1)
            batch = WatchBatch(records.header(response.header), revision, events)
            await self._entered.wait()
            try:
                await self._deliver(batch)
            except Exception as error:
                raise _NotTaken(error) from error

    async def _read(self, stream: WatchStream) -> pb.WatchResponse:
        response = await stream.read()
        self.heard_at = self._transport.clock()
        if response.compact_revision:
            raise Compacted(f"revision {self.next_revision} is compacted", response.compact_revision)
        if response.canceled:
            reason = response.cancel_reason or "etcd gave no reason"
            raise from_text(reason) or WatchCancelled(reason)
        return response
