# SPDX-License-Identifier: Apache-2.0
"""The login's token: taken once, shared by all calls, renewed when etcd no longer knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ledger.etcd.errors import AuthFailed, StaleToken


class Tokens:
    """Keeps the token. `login` asks etcd for a new one; None: no user was given, and no token is ever
    sent."""

    def __init__(self, login: Callable[[], Awaitable[str]] | None) -> None:
        self._login = login
        self._token: str | None = None
        self._one_login = asyncio.Lock()

    @property
    def known(self) -> str | None:
        """The token in use, empty where none is to be sent; None where a login comes first."""
        return "" if self._login is None else self._token

    async def current(self) -> str:
        """The token in use, after a login where there is none; empty where none is to be sent.

        Raises:
            AuthFailed: etcd refused user or password.
            Unavailable: no member answered in time.
        """
        if self._login is None:
            return ""
        if self._token is None:
            # A thousand calls find the token stale at once; one of them logs in.
            async with self._one_login:
                if self._token is None:
                    self._token = await self._login()
        return self._token

    def drop(self, stale: str, why: StaleToken) -> None:
        """Forget `stale`, unless it has been renewed since.

        Raises:
            AuthFailed: there is no user to log in with.
        """
        if self._login is None:
            raise AuthFailed(why.cause) from None
        if self._token == stale:
            self._token = None
