# SPDX-License-Identifier: Apache-2.0
"""Turns for jobs of many ranks: rank 0 asks, all ranks wait for its word, and all are done before it is given back.

    import tsclient.distributed as ts

    with ts.accelerators("trainers", timeout=600) as turn:      # on every rank
        for batch in batches:
            turn.check()                                        # LockLost on every rank, at the same step
            step(batch)

What the ranks say to each other goes over the CPU: over a gloo group of `torch.distributed` that is made for it at
the first use, never over NCCL, whose ranks are off the device while the job waits. PyTorch's own watchdogs do not
know that a job may wait for hours: docs/client.md names those that have to be raised.

A rank that dies breaks the group for the others, which then see an error in whatever they say next. Rank 0 gives
the turn back in that case too; if rank 0 itself dies, its helper ends the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import tsclient
from tsclient.errors import InternalError, NotHolder, TimesliceError
from tsclient.helper.wire import pack, unpack
from tsclient.turn import add_note

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tsclient.options import Options

__all__ = ["Accelerators", "Ranks", "TorchRanks", "Turn", "accelerators"]

WORD = 8192  # bytes of one message between ranks
NEVER = timedelta(days=365)  # a wait for a turn takes as long as rank 0 says, not as long as gloo thinks fit


class Ranks(Protocol):
    """How the ranks of a job talk. Every rank makes the same calls in the same order.

    Attributes:
        rank: of this process, from 0.
    """

    rank: int

    def from_zero(self, message: bytes) -> bytes:
        """Rank 0's message, on every rank. An error if a rank is gone."""

    def barrier(self) -> None:
        """Wait until every rank has come here. An error if a rank is gone."""


class TorchRanks:
    """The ranks of `torch.distributed`, by a gloo group of their own. Made on all ranks at the same place."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self._group = dist.new_group(backend="gloo", timeout=NEVER)
        self.rank: int = dist.get_rank()

    def from_zero(self, message: bytes) -> bytes:
        padded = len(message).to_bytes(4, "big") + message
        word = self._torch.zeros(WORD + 4, dtype=self._torch.uint8)
        word[: len(padded)] = self._torch.frombuffer(bytearray(padded), dtype=self._torch.uint8)
        self._dist.broadcast(word, src=0, group=self._group)
        received = bytes(word.tolist())
        return received[4 : 4 + int.from_bytes(received[:4], "big")]

    def barrier(self) -> None:
        self._dist.barrier(group=self._group)


def synchronize() -> None:
    """Wait until the device has done all that this process has asked of it, if it uses one."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


class Turn:
    """A turn of all ranks.

    Attributes:
        group, token: as of `tsclient.Turn`; the same on every rank.
        tokens: by group.
    """

    def __init__(self, ranks: Ranks, own: tsclient.Turn | None, group: str, tokens: Mapping[str, int]) -> None:
        self.group, self.tokens = group, MappingProxyType(dict(tokens))
        self.token = tokens[group]
        self._ranks = ranks
        self._own = own  # rank 0's
        self._over: TimesliceError | None = None

    def check(self) -> None:
        """As `tsclient.Turn.check`, on every rank at the same step: it is a message from rank 0 to all others.

        Every rank has to call it, equally often. Where steps are shorter than some milliseconds, call it every
        tenth.

        Raises:
            LockLost: the turn is over, for all ranks.
        """
        if self._over is None:
            answer = unpack(self._ranks.from_zero(pack(self._state())))
            self._over = answer if isinstance(answer, TimesliceError) else None
        if self._over is not None:
            raise self._over

    def _state(self) -> TimesliceError | None:
        if self._own is not None:
            try:
                self._own.check()
            except TimesliceError as error:
                return error
        return None

    def _end(self, error: BaseException | None, sync: Callable[[], None]) -> None:
        """Give it back once every rank has come here; at once, if this rank comes with an error.

        Raises:
            TimesliceError: on every rank alike: it was lost, or its end is not confirmed.
        """
        if self._over is not None:
            return  # every rank knows of its loss
        if error is not None:
            self._give_back()
            return
        try:
            sync()
            self._ranks.barrier()
        except BaseException:
            self._give_back()
            raise
        answer = unpack(self._ranks.from_zero(pack(self._give_back())))
        if isinstance(answer, TimesliceError):
            raise answer

    def _give_back(self) -> TimesliceError | None:
        self._over = NotHolder("The turn was given back.")
        if self._own is not None:
            try:
                self._own.yield_()
            except TimesliceError as trouble:
                return trouble
        return None


class Accelerators:
    """What `accelerators(...)` returns; to be entered on every rank. May be entered again and again."""

    def __init__(
        self,
        acquire: Callable[[], tsclient.Turn],
        ranks: Callable[[], Ranks],
        sync: Callable[[], None],
    ) -> None:
        self._acquire, self._ranks, self._sync = acquire, ranks, sync
        self._entered: list[Turn] = []

    def __enter__(self) -> Turn:
        ranks = self._ranks()
        own: tsclient.Turn | None = None
        said: Any = None
        trouble: BaseException | None = None
        if ranks.rank == 0:
            try:
                own = self._acquire()
                said = [own.group, dict(own.tokens)]
            except TimesliceError as error:
                said = error
            except BaseException as error:  # noqa: BLE001 - the others wait for a word, whatever it is
                said, trouble = InternalError(f"Rank 0 was interrupted: {error!r}."), error
        try:
            answer = unpack(ranks.from_zero(pack(said)))
        except BaseException as error:
            if own is not None:
                with suppress(TimesliceError):
                    own.yield_()  # a rank is gone: the turn is of no use
            if trouble is not None:
                raise trouble from error
            raise
        if trouble is not None:
            raise trouble
        if isinstance(answer, TimesliceError):
            raise answer
        group, tokens = answer
        turn = Turn(ranks, own, group, tokens)
        self._entered.append(turn)
        return turn

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        turn = self._entered.pop()
        try:
            turn._end(error, self._sync)  # noqa: SLF001 - the two are one
        except TimesliceError as trouble:
            if error is None:
                raise
            add_note(error, trouble)


_torch_ranks: list[TorchRanks] = []


def _own_ranks() -> Ranks:
    if not _torch_ranks:
        _torch_ranks.append(TorchRanks())
    return _torch_ranks[0]


def accelerators(
    *groups: str,
    client: tsclient.Client | None = None,
    ranks: Ranks | None = None,
    sync: Callable[[], None] = synchronize,
    **options: Unpack[Options],
) -> Accelerators:
    """A turn for all ranks, for the length of a `with` block that every rank enters and leaves.

    Args:
        groups, options: as of `tsclient.accelerators`; rank 0's count.
        client: rank 0's; None: the process's own. No other rank needs one, or talks to a coordinator.
        ranks: how they talk; None: `TorchRanks`, once `torch.distributed.init_process_group` was called.
        sync: called on every rank at the block's end, before the turn is given back.

    Raises:
        TimesliceError: on every rank, what rank 0's acquire raised.
    """

    def acquire() -> tsclient.Turn:
        source = tsclient if client is None else client
        return source.acquire(*groups, **options)

    return Accelerators(acquire, _own_ranks if ranks is None else lambda: ranks, sync)
