# SPDX-License-Identifier: Apache-2.0
"""A command's processes, registered with the coordinators so that the node's agent knows whose they are."""

from __future__ import annotations

import argparse
import sys
import threading
from typing import TYPE_CHECKING

from timeslice_proto.v1 import coordinator_pb2, records_pb2
from tsclient.cli.calls import call
from tsclient.cli.processes import Process, Tree, boot_id
from tsclient.errors import TimesliceError

if TYPE_CHECKING:
    from tsclient.cli.waiting import Wanted

_SCAN = 1.0  # s; between two looks at the tree
_END = 5.0  # s; for a call in flight at the end


class Registered:
    """While it is in the block the tree's processes stand in the ledger; again when some have come or gone.

    Args:
        args: of the command, for where to call.
        node: by the name that its agent has.
    """

    def __init__(self, args: argparse.Namespace, wanted: Wanted, node: str, tree: Tree) -> None:
        self._args, self._wanted, self._node, self._tree = args, wanted, node, tree
        self._said: frozenset[Process] = frozenset()
        self._trouble = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="registers processes", daemon=True)

    def __enter__(self) -> None:
        """Raises TimesliceError: a command that is not registered is better not begun."""
        self._say(self._tree.living())
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(_END)
        self._try()

    def _keep(self) -> None:
        while not self._over.wait(_SCAN):
            self._try()

    def _try(self) -> None:
        living = self._tree.living()
        if living == self._said:
            return
        try:
            self._say(living)
        except TimesliceError as error:
            # It is tried again, and a person is told once of each kind of trouble.
            if str(error) != self._trouble:
                self._trouble = str(error)
                print(f"timeslice run: the command's processes are not registered: {error}", file=sys.stderr)

    def _say(self, living: frozenset[Process]) -> None:
        boot = boot_id()
        request = coordinator_pb2.RegisterProcessesRequest(
            group=self._wanted.group,
            job=self._wanted.job,
            node=self._node,
            processes=[
                records_pb2.Process(boot_id=boot, pid=one.pid, start_time=one.start_time) for one in sorted(living)
            ],
        )
        call(self._args, lambda stub, left: stub.RegisterProcesses(request, timeout=left))
        self._said = living
