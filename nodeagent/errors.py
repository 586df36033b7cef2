# SPDX-License-Identifier: Apache-2.0
"""What keeps an agent from its work. Failures of a single step are `nodeagent.backends.base.BackendError`."""

from __future__ import annotations


class AgentError(Exception):
    """Base.

    Attributes:
        reason: the reason of docs/errors.md, in capitals.
        next_step: what the reader can do about it.
    """

    reason = "AGENT_ERROR"
    next_step = ""

    def __str__(self) -> str:
        return f"{super().__str__()} {self.next_step}".rstrip()


class JournalUnwritable(AgentError):
    """The journal cannot be written, so no switch may begin: a crash would lose what was begun."""

    reason = "JOURNAL_UNWRITABLE"
    next_step = "Free space on, or mend, the disk of --state-dir; the agent goes on by itself."

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"The journal {path} cannot be written: {error.strerror or error}.")
        self.error = error


class JournalCorrupt(AgentError):
    """The journal's content is damaged before its end: what was begun is not known."""

    reason = "JOURNAL_CORRUPT"
    next_step = "Restart the node, or end every job on its devices; then remove the journal and start the agent."

    def __init__(self, path: str, line: int, why: str) -> None:
        super().__init__(f"The journal {path} is damaged in line {line}: {why}.")
        self.line, self.why = line, why


class AlreadyRegistered(AgentError):
    """Another living agent is registered for this node."""

    reason = "ALREADY_REGISTERED"
    next_step = "Give each node a name of its own with --node, or wait until the other's lease has ended."

    def __init__(self, node: str) -> None:
        super().__init__(f"Node {node} has a registered agent that is not this one.")
        self.node = node
