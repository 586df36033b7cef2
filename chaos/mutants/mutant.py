# SPDX-License-Identifier: Apache-2.0
"""What a planted bug is."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.mutants.catch import Catch
from chaos.mutants.edit import Edit


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug.

    Attributes:
        name: for the command line.
        what: what the system does with it, in one sentence.
        edits: that make it, in order.
        catch: what has to notice it.
        behind: which other defence hides it elsewhere, so that this check shows it and not another.
        fast: it takes seconds, and no etcd.
    """

    name: str
    what: str
    edits: tuple[Edit, ...]
    catch: Catch
    behind: str = ""
    fast: bool = False
