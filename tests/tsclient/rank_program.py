# SPDX-License-Identifier: Apache-2.0
"""One rank of a job: `rank_program.py torch|sockets RANK RANKS PLACE MODE`, told by lines what happens to it.

PLACE is a file to meet at (torch), or the descriptors of sockets to the other ranks, comma separated: rank 0 has
one to each, the others one to rank 0. MODE: "steps" takes ten steps; "on" goes on until something happens.
"""

from __future__ import annotations

import socket
import sys
import time

import tsclient
import tsclient.distributed as ts


class SocketRanks:
    """What gloo does, over a star of sockets: the end of a process is the end of its sockets."""

    def __init__(self, rank: int, descriptors: list[int]) -> None:
        self.rank = rank
        self._peers = [socket.socket(fileno=descriptor) for descriptor in descriptors]

    def from_zero(self, message: bytes) -> bytes:
        if self.rank:
            return self._receive(self._peers[0])
        for peer in self._peers:
            peer.sendall(len(message).to_bytes(4, "big") + message)
        return message

    def barrier(self) -> None:
        if self.rank:
            self._peers[0].sendall(b"\0\0\0\0")
        else:
            for peer in self._peers:
                self._receive(peer)
        self.from_zero(b"")

    def _receive(self, peer: socket.socket) -> bytes:
        return self._exactly(peer, int.from_bytes(self._exactly(peer, 4), "big"))

    def _exactly(self, peer: socket.socket, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = peer.recv(count - len(found))
            if not more:
                raise ConnectionError("a rank is gone")
            found += more
        return found


def ranks_of(way: str, rank: int, count: int, place: str) -> ts.Ranks:
    if way == "sockets":
        return SocketRanks(rank, [int(one) for one in place.split(",")])
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=count)
    return ts.TorchRanks()


def main() -> None:
    way, rank, count, place, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    step = 0
    synced = [0]

    def sync() -> None:
        synced[0] += 1

    try:
        with ts.accelerators("g", timeout=60, ranks=ranks_of(way, rank, count, place), sync=sync) as turn:
            print("token", turn.token)
            while mode == "on" or step < 10:
                turn.check()
                step += 1
                if rank == 0:
                    time.sleep(0.005)  # the others wait for its word
    except tsclient.TimesliceError as error:
        print(error.reason, "at step", step)
    except Exception as error:
        print("broken", file=sys.stderr)
        raise SystemExit(3) from error
    else:
        print("done at step", step, "synced", synced[0], "grpc" in sys.modules)


if __name__ == "__main__":
    main()
