# SPDX-License-Identifier: Apache-2.0
"""What a helper has put on record without saying it: for its successor alone, should it be killed.

Each change of a session has to be on record before the coordinator hears of it. One that is no news to anybody would
wake the job's process up for nothing; so it goes into memory that both processes have, and is read once the helper is
dead. A session has two pages there, written by turns and stamped last: who is killed while writing one leaves the
other.
"""

from __future__ import annotations

import mmap
import os

from tsclient.descriptors import above_standard

PLACES = 16  # sessions of one process that have pages; further ones have to say everything
_PAGE = 4096
_WORD = 8
_HEADER = 2 * _WORD  # the stamp, and how long the note is
ROOM = _PAGE - _HEADER
_BYTES = 2 * PLACES * _PAGE


def memory() -> int:
    """A file descriptor of memory that two processes can share; not inherited unless passed on."""
    descriptor = above_standard(os.memfd_create("tsclient-notes", os.MFD_CLOEXEC))
    os.ftruncate(descriptor, _BYTES)
    return descriptor


class Notes:
    """The pages of all sessions, as one of the two processes sees them."""

    def __init__(self, descriptor: int) -> None:
        self._bytes = memoryview(mmap.mmap(descriptor, _BYTES))
        self._words = self._bytes.cast("Q")

    def write(self, place: int, stamp: int, note: bytes) -> bool:
        """Put it there in place of the one before last; False if it is too long, and then nothing is done.

        Args:
            stamp: larger than any before in this place, and than zero; a note takes the page by its stamp's last bit.
        """
        if len(note) > ROOM:
            return False
        start = (2 * place + stamp % 2) * _PAGE
        word = start // _WORD
        self._words[word] = 0  # nobody may take it for whole
        self._words[word + 1] = len(note)
        self._bytes[start + _HEADER : start + _HEADER + len(note)] = note
        self._words[word] = stamp
        return True

    def read(self, place: int) -> list[tuple[int, bytes]]:
        """The notes that are whole, each with its stamp; to be called when nobody writes any more."""
        whole: list[tuple[int, bytes]] = []
        for start in (2 * place * _PAGE, (2 * place + 1) * _PAGE):
            stamp, length = self._words[start // _WORD], self._words[start // _WORD + 1]
            if stamp:
                whole.append((stamp, bytes(self._bytes[start + _HEADER : start + _HEADER + length])))
        return whole
