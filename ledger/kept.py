# SPDX-License-Identifier: Apache-2.0
"""A record together with what etcd knows about its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Kept(Generic[R_co]):
    """One record as it is kept in etcd.

    Attributes:
        name: the last part of the key: the job of a ticket, the node of an acknowledgement.
        value: the record.
        create: the key's create revision.
        mod: the key's mod revision.
        lease: the lease that it hangs on; 0 for none.
    """

    name: str
    value: R_co
    create: int
    mod: int
    lease: int = 0
