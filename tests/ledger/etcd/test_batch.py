# SPDX-License-Identifier: Apache-2.0
"""Group commit against a real etcd: what goes together, what must not, and whose the errors are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from ledger.etcd import EtcdClient, GroupCommit, RangeResult, TxnResult
from ledger.etcd.errors import (
    Closed,
    DeadlineExceeded,
    InvalidRequest,
    KeyNotFound,
    LeaseNotFound,
    TooLarge,
    Unavailable,
)
from ledger.etcd.txn import (
    WIDEST_BESIDE,
    Delete,
    Get,
    Put,
    Txn,
    absent,
    delete_prefix,
    get_prefix,
    modified_at,
    prefix_empty,
)
from tests.support.etcd_source import TestEtcd
from tests.support.proxy import Proxy
from tests.support.until import until

WITHIN = 30.0


@dataclass
class Jam:
    """A group commit whose first request is held up on its way, so that all others have to wait for it.

    Attributes:
        asked: what waits, in order.
    """

    proxy: Proxy
    client: EtcdClient
    commit: GroupCommit
    prefix: bytes
    asked: list[asyncio.Task[TxnResult]] = field(default_factory=list)

    async def begin(self) -> None:
        await self.client.get(self.prefix)
        self.proxy.hold_requests()
        self.first = asyncio.create_task(self.commit.txn([], [Put(self.prefix + b"first", b"")], timeout=WITHIN))
        await until(lambda: self.client.requests["txn"] == 1)

    async def ask(self, *txns: Txn, idempotent: bool = False, timeout: float = WITHIN) -> list[asyncio.Task[TxnResult]]:
        tasks = [
            asyncio.create_task(
                self.commit.txn(one.compares, one.success, one.failure, idempotent=idempotent, timeout=timeout)
            )
            for one in txns
        ]
        self.asked += tasks
        await asyncio.sleep(0)
        return tasks

    async def end(self) -> list[TxnResult | BaseException]:
        """Let all go. The answers to what was asked, in order."""
        assert self.client.requests["txn"] == 1, "they wait"
        self.proxy.release()
        async with asyncio.timeout(WITHIN):
            await self.first
            return await asyncio.gather(*self.asked, return_exceptions=True)


@pytest.fixture
async def jam(etcd: TestEtcd, connect, prefix: bytes) -> AsyncIterator[Jam]:
    async with Proxy(etcd.endpoint) as proxy:
        client: EtcdClient = connect(proxy.endpoint)
        jam = Jam(proxy, client, GroupCommit(client), prefix)
        await jam.begin()
        yield jam
        proxy.release()
        await asyncio.gather(*jam.asked, jam.first, return_exceptions=True)


def results(answers: Sequence[TxnResult | BaseException]) -> list[TxnResult]:
    assert all(isinstance(one, TxnResult) for one in answers), answers
    return [one for one in answers if isinstance(one, TxnResult)]


async def test_what_comes_meanwhile_goes_together(jam: Jam, client: EtcdClient, prefix: bytes) -> None:
    """As one request, at one revision, with the answer to each its own."""
    there = (await client.put(prefix + b"there", b"1")).revision
    lease = (await client.grant(60)).lease_id
    await jam.ask(
        Txn([absent(prefix + b"a")], [Put(prefix + b"a", b"1", lease=lease)]),
        Txn([absent(prefix + b"there")], [Put(prefix + b"b", b"1")], [Get(prefix + b"there"), Get(prefix + b"x")]),
        Txn([modified_at(prefix + b"there", there)], [Put(prefix + b"c", b"1"), Put(prefix + b"d", b"2")]),
    )
    first, lost, last = results(await jam.end())
    assert jam.client.requests["txn"] == 2
    assert (first.succeeded, lost.succeeded, last.succeeded) == (True, False, True)
    assert first.revision == last.revision == lost.revision
    assert (len(first.responses), len(lost.responses), len(last.responses)) == (1, 2, 2)
    found, missing = lost.responses
    assert isinstance(found, RangeResult)
    assert isinstance(missing, RangeResult)
    assert [kv.value for kv in found] == [b"1"]
    assert not missing.kvs
    written = {kv.key: kv for kv in await client.get_prefix(prefix)}
    assert prefix + b"b" not in written
    for key in (b"a", b"c", b"d"):
        assert written[prefix + key].create_revision == written[prefix + key].mod_revision == first.revision
    assert written[prefix + b"a"].lease == lease


async def test_where_nothing_is_in_flight_it_goes_at_once(client: EtcdClient, prefix: bytes) -> None:
    commit = GroupCommit(client)
    revisions = [(await commit.txn([], [Put(prefix, b"%d" % number)])).revision for number in range(5)]
    assert len(set(revisions)) == 5
    assert client.requests["txn"] == 5


K = b"k/"
WRITTEN = Put(K, b"1")
DISTURBED = {
    "both put a key": (Txn([absent(K)], [WRITTEN]), Txn([absent(K)], [WRITTEN])),
    "one deletes what the other puts": (Txn([], [WRITTEN]), Txn([], [Delete(K)])),
    "one puts what the other compares": (Txn([], [WRITTEN]), Txn([absent(K)], [Put(b"other", b"")])),
    "one compares what the other puts": (Txn([absent(K)], [Put(b"other", b"")]), Txn([], [WRITTEN])),
    "one puts what the other reads": (Txn([], [WRITTEN]), Txn([], [Get(K)])),
    "one puts into a range that the other compares": (Txn([], [WRITTEN]), Txn([prefix_empty(K)], [Put(b"o", b"")])),
    "one compares a range that the other puts into": (Txn([prefix_empty(K)], [Put(b"o", b"")]), Txn([], [WRITTEN])),
    "one reads a range that the other puts into": (Txn([], [get_prefix(K)]), Txn([], [WRITTEN])),
    "one deletes a range that the other puts into": (Txn([], [WRITTEN]), Txn([], [delete_prefix(K)])),
    "one deletes a range that the other compares": (
        Txn([prefix_empty(K + b"under/")], [Put(b"o", b"")]),
        Txn([], [delete_prefix(K)]),
    ),
    "one puts, where its guard is lost, what the other puts": (
        Txn([modified_at(K, 77)], [], [WRITTEN]),
        Txn([absent(K)], [WRITTEN]),
    ),
}


@pytest.mark.parametrize("case", DISTURBED, ids=lambda case: case.replace(" ", "-"))
async def test_two_of_which_one_disturbs_the_other_go_one_after_the_other(jam: Jam, prefix: bytes, case: str) -> None:
    one, other = (_under(prefix, txn) for txn in DISTURBED[case])
    beside = Txn([absent(prefix + b"apart")], [Put(prefix + b"apart", b"")])
    await jam.ask(one, other, beside)
    first, second, third = results(await jam.end())
    assert jam.client.requests["txn"] == 3
    assert first.revision == third.revision, "what disturbs neither does not wait"
    if case == "both put a key":
        assert (first.succeeded, second.succeeded) == (True, False)


def _under(prefix: bytes, txn: Txn) -> Txn:
    """The same under a prefix of the test's own."""

    def moved(one):
        end = getattr(one, "range_end", b"")
        return replace(one, key=prefix + one.key, **({"range_end": prefix + end} if end else {}))

    return Txn(*([moved(one) for one in part] for part in (txn.compares, txn.success, txn.failure)))


@pytest.mark.parametrize(
    ("fault", "error"), [("lease", LeaseNotFound), ("key", KeyNotFound), ("large", TooLarge), ("twice", InvalidRequest)]
)
async def test_who_is_refused_is_refused_alone(
    jam: Jam, client: EtcdClient, prefix: bytes, fault: str, error: type[Exception]
) -> None:
    """Etcd refuses all that goes together for the sake of one."""
    culprit = {
        "lease": Txn([], [Put(prefix + b"bad", b"", lease=client.new_lease_id())]),
        "key": Txn([], [Put(prefix + b"bad", b"", ignore_lease=True)]),
        "large": Txn([], [Put(prefix + b"bad", b"x" * (2 << 20))]),
        "twice": Txn([], [Put(prefix + b"bad", b"1"), Put(prefix + b"bad", b"2")]),
    }[fault]
    good = [Txn([absent(prefix + b"%d" % n)], [Put(prefix + b"%d" % n, b"")]) for n in range(3)]
    await jam.ask(good[0], culprit, *good[1:])
    first, refused, *others = await jam.end()
    assert isinstance(refused, error)
    assert all(one.succeeded for one in results([first, *others]))
    assert (await client.get_prefix(prefix + b"bad")).count == 0


async def test_what_is_too_wide_goes_alone(jam: Jam, prefix: bytes) -> None:
    wide = Txn([], [Put(prefix + b"wide/%d" % number, b"") for number in range(WIDEST_BESIDE + 1)])
    as_wide_as_may_be = Txn([], [Put(prefix + b"w/%d" % number, b"") for number in range(WIDEST_BESIDE)])
    await jam.ask(wide, as_wide_as_may_be, *(Txn([], [Put(prefix + b"%d" % n, b"")]) for n in range(31)))
    alone, *together = results(await jam.end())
    assert alone.revision not in {one.revision for one in together}
    assert len({one.revision for one in together}) == 1
    assert jam.client.requests["txn"] == 3


async def test_what_may_not_be_sent_twice_goes_apart_from_what_may(jam: Jam, prefix: bytes) -> None:
    await jam.ask(*(Txn([], [Put(prefix + b"%d" % n, b"")]) for n in range(2)), idempotent=True)
    await jam.ask(*(Txn([], [Put(prefix + b"%d" % n, b"")]) for n in range(2, 4)))
    a, b, c, d = results(await jam.end())
    assert a.revision == b.revision < c.revision == d.revision


async def test_who_gives_up_while_waiting_is_left_out(jam: Jam, client: EtcdClient, prefix: bytes) -> None:
    waiting = await jam.ask(*(Txn([], [Put(prefix + b"w/%d" % n, b"")]) for n in range(3)))
    waiting[1].cancel()
    first, gone, last = await jam.end()
    assert isinstance(gone, asyncio.CancelledError)
    assert first.revision == last.revision
    assert [kv.key for kv in await client.get_prefix(prefix + b"w/")] == [prefix + b"w/0", prefix + b"w/2"]


async def test_who_gives_up_once_it_is_sent_takes_nobody_with_it(jam: Jam, client: EtcdClient, prefix: bytes) -> None:
    a, b = await jam.ask(*(Txn([], [Put(prefix + b"w/%d" % n, b"")]) for n in range(2)))
    jam.proxy.hold_answers()
    jam.proxy.hold_requests()
    jam.first.cancel()
    await until(lambda: jam.client.requests["txn"] == 2)
    a.cancel()
    jam.proxy.release()
    async with asyncio.timeout(WITHIN):
        assert (await b).succeeded
    assert a.cancelled()


async def test_the_time_allowed_counts_the_wait(jam: Jam, client: EtcdClient, prefix: bytes) -> None:
    """And only what was sent may have been applied."""
    (late,) = await jam.ask(Txn([], [Put(prefix + b"late", b"")]), timeout=0.05)
    (patient,) = await jam.ask(Txn([], [Put(prefix + b"patient", b"")]))
    with pytest.raises(DeadlineExceeded) as caught:
        await late
    assert not caught.value.ambiguous
    jam.asked.clear()
    await jam.end()
    assert (await patient).succeeded
    assert await client.get(prefix + b"late") is None


async def test_lost_answers_are_in_doubt_for_all(jam: Jam, client: EtcdClient, prefix: bytes) -> None:
    await jam.ask(*(Txn([], [Put(prefix + b"w/%d" % n, b"")]) for n in range(3)))
    jam.first.cancel()
    await until(lambda: jam.client.requests["txn"] == 2)
    jam.proxy.lose_answers()
    jam.proxy.release()
    async with asyncio.timeout(WITHIN):
        answers = await asyncio.gather(*jam.asked, return_exceptions=True)
    assert [one.ambiguous for one in answers if isinstance(one, Unavailable)] == [True] * 3
    assert (await client.get_prefix(prefix + b"w/")).count == 3, "they were applied"
    assert jam.client.requests["txn"] == 2, "and are not sent again"


async def test_who_closes_the_client_ends_all_that_waits(jam: Jam, prefix: bytes) -> None:
    await jam.ask(*(Txn([], [Put(prefix + b"%d" % n, b"")]) for n in range(3)))
    await jam.client.close()
    async with asyncio.timeout(WITHIN):
        answers = await asyncio.gather(jam.first, *jam.asked, return_exceptions=True)
    assert [type(one) for one in answers] == [Closed] * 4


async def test_a_crowd_loses_no_write_and_shares_requests(client: EtcdClient, prefix: bytes) -> None:
    """Fifty writers, each counting up a key of its own and one of five that they contend for, under guards."""
    commit = GroupCommit(client)

    async def count_up(key: bytes) -> int:
        lost = 0
        while True:
            kv = await client.get(key)
            value, mod = (int(kv.value), kv.mod_revision) if kv else (0, 0)
            if (await commit.txn([modified_at(key, mod)], [Put(key, b"%d" % (value + 1))], timeout=WITHIN)).succeeded:
                return lost
            lost += 1

    async def writer(number: int) -> int:
        lost = 0
        for _ in range(4):
            await count_up(prefix + b"own/%02d" % number)
            lost += await count_up(prefix + b"shared/%d" % (number % 5))
        return lost

    before = client.requests["txn"]
    async with asyncio.timeout(WITHIN):
        lost = sum(await asyncio.gather(*map(writer, range(50))))
    own, shared = await client.get_prefix(prefix + b"own/"), await client.get_prefix(prefix + b"shared/")
    assert [kv.value for kv in own] == [b"4"] * 50
    assert [kv.value for kv in shared] == [b"40"] * 5
    assert client.requests["txn"] - before < (400 + lost) / 2
