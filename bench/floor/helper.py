# SPDX-License-Identifier: Apache-2.0
"""The floor's helper of a job, ``python -m bench.floor.helper SOCKET_FD ENDPOINT TTL``: packets, a stream, and back."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import cast

import grpc.aio

from bench.floor.packets import answer, memory, read
from timeslice_proto.v1 import coordinator_pb2, coordinator_pb2_grpc, records_pb2

Request = coordinator_pb2.SessionRequest
_BEATS_IN_TTL = 3


def _of(packet: memoryview) -> Request:
    """What a packet of the job asks for."""
    match read(packet):
        case ["acquire", int(sequence), str(job), str(group), _]:
            return Request(acquire=coordinator_pb2.AcquireRequest(sequence=sequence, job=job, groups=[group]))
        case ["yield", int(sequence), str(job), str(group), int(token)]:
            request = Request()
            body = getattr(request, "yield")
            body.sequence, body.job, body.group, body.token = sequence, job, group, token
            return request
        case other:
            raise AssertionError(f"no packet of a job: {other}")


async def _run(ours: socket.socket, endpoint: str, ttl: float) -> None:
    ours.setblocking(False)
    loop, packet = asyncio.get_running_loop(), memory()
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub = cast("coordinator_pb2_grpc.CoordinatorAsyncStub", coordinator_pb2_grpc.CoordinatorStub(channel))
        call = stub.Session()
        process = records_pb2.Process(boot_id="", pid=os.getppid(), start_time=0)
        open_ = coordinator_pb2.OpenRequest(process=process, ttl_ms=round(ttl * 1000))
        await call.write(Request(open=open_))
        writing = asyncio.Lock()

        async def send(request: Request) -> None:
            async with writing:
                await call.write(request)

        async def events() -> None:
            while isinstance(event := await call.read(), coordinator_pb2.SessionEvent):
                if (packet := answer(event)) is not None:
                    ours.send(packet)

        async def beats() -> None:
            number = 0
            while True:
                await asyncio.sleep(ttl / _BEATS_IN_TTL)
                number += 1
                await send(Request(beat=coordinator_pb2.BeatRequest(number=number)))

        async with asyncio.TaskGroup() as group:
            working = [group.create_task(events()), group.create_task(beats())]
            while length := await loop.sock_recv_into(ours, packet):
                await send(_of(packet[:length]))
            for task in working:
                task.cancel()


def main() -> None:
    """Serve until the job has ended."""
    descriptor, endpoint, ttl = sys.argv[1:]
    with socket.socket(fileno=int(descriptor)) as ours:
        asyncio.run(_run(ours, endpoint, float(ttl)))


if __name__ == "__main__":
    main()
