# SPDX-License-Identifier: Apache-2.0
"""What a simulated kernel does to memory. The device and a workload that checks it compute the same."""

from __future__ import annotations

import hashlib


def mutate(data: bytearray, count: int) -> None:
    """Run kernel number ``count`` (from 0) on ``data``, in place: each depends on every byte left by those
    before."""
    digest = hashlib.sha256(data + count.to_bytes(8, "big")).digest()
    size = len(data)
    for offset, byte in enumerate(digest):
        data[(count * len(digest) + offset) % size] ^= byte


def checksum(data: bytes | bytearray) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()
