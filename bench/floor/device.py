# SPDX-License-Identifier: Apache-2.0
"""The floor's devices, and the helper through which the agent asks them: a line in, a line out, and no more.

``python -m bench.floor.device serve SOCKET`` is the devices' process, one thread for each who asks;
``python -m bench.floor.device ask SOCKET`` the helper, which hands on each line of its input and answers on its output.
"""

from __future__ import annotations

import json
import socket
import socketserver
import sys


class _Device(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(json.dumps(json.loads(line)).encode() + b"\n")


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def serve(path: str) -> None:
    with _Server(path, _Device) as server:
        print("floor devices serve", flush=True)
        server.serve_forever()


def ask(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as device:
        device.connect(path)
        with device.makefile("rwb") as stream:
            for line in sys.stdin.buffer:
                stream.write(json.dumps(json.loads(line)).encode() + b"\n")
                stream.flush()
                sys.stdout.buffer.write(json.dumps(json.loads(stream.readline())).encode() + b"\n")
                sys.stdout.buffer.flush()


def main() -> None:
    """Run either."""
    {"serve": serve, "ask": ask}[sys.argv[1]](sys.argv[2])


if __name__ == "__main__":
    main()
