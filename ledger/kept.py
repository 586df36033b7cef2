# SPDX-License-Identifier: Apache-2.0
"""A record together with what etcd knows about its key."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

R_co = TypeVar("R_co", covariant=True)


class Kept(Struct, Generic[R_co], frozen=True):
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
