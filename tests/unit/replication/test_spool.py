"""Tests of the spool: it replays transactions as sent without streaming, bounds memory, refuses misplaced messages."""

import contextlib
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.errors import DecodeError, LakeUnusable, WrongSource
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import ChangeDecoder
from auditlake.pgoutput.decoder import (
    Begin,
    Commit,
    Insert,
    LogicalMessage,
    Message,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    decode,
)
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.replication.spool import Spool
from auditlake.settings.streaming_mode import NotStreamed
from tests.unit.pgoutput.encode import encode, encode_streamed
from tests.unit.pgoutput.framing import frame
from tests.unit.pgoutput.model import Model, Versions
from tests.unit.pgoutput.strategies import effort
from tests.unit.pgoutput.streamed_model import plain_messages, through_spool
from tests.unit.pgoutput.streaming_server import TIME, Row, StreamingServer
from tests.unit.pgoutput.vectors import BOUNDARIES

KINDS = ["change"] * 6 + ["stream"] * 3 + ["savepoint", "savepoint", "rollback", "rollback", "release"]
KINDS += ["commit", "abort", "plain", "plain", "rename"]


def random_steps(seed: int) -> list[tuple[str, int, int]]:
    """Draw steps from a seed: interesting cases need more steps than Hypothesis draws well."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    steps = [(chance.choice(KINDS), chance.randrange(3), chance.randrange(12)) for _ in range(chance.choice([15, 100]))]
    return [*steps, *((kind, session, seed) for session in range(3) for kind in ("change", "commit")), ("plain", 0, 2)]


steps = st.integers(0, 2**32).map(random_steps)
first_xids = st.sampled_from([700, 2**32 - 5, 2**32 - 20])
limits = st.sampled_from([0, 2000, 1 << 20])


@given(steps, first_xids, limits, st.integers(1, 5))
@effort
def test_replayed_rows_are_the_committed_ones(
    steps: list[tuple[str, int, int]], xid: int, memory: int, piece: int
) -> None:
    """Every committed transaction is complete and in commit order, with the tables' names at the time."""
    server = StreamingServer(xid)
    for step in steps:
        server.step(*step)
    spool = Spool(memory_bytes=memory)
    decoder = ChangeDecoder()
    plain = list(through_spool(spool, server.payloads, piece))
    cut = len(plain) // 2
    rows = [row for half in (plain[:cut], plain[cut:]) for row in decoder.decode(*frame(half)).changes.to_pylist()]
    spool.close()
    replayed: dict[int, list[Row]] = {}
    for row in rows:
        assert row["ordinal"] == len(replayed.setdefault(row["lsn"], []))
        replayed[row["lsn"]].append((row["table"], row["new"][0]))
    assert [(lsn, rows) for lsn, rows in server.committed if rows] == list(replayed.items())


@given(steps, limits, st.data())
@effort
def test_a_corrupted_byte_is_refused_or_decodes_as_in_the_model(
    steps: list[tuple[str, int, int]], memory: int, data: st.DataObject
) -> None:
    """A corrupted byte causes a protocol error, or rows equal to those of the model."""
    server = StreamingServer(700)
    for step in steps:
        server.step(*step)
    payloads = [bytearray(payload) for payload in server.payloads]
    damaged = data.draw(st.sampled_from(payloads))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    sent = [bytes(payload) for payload in payloads]
    with contextlib.suppress(DecodeError, WrongSource), contextlib.closing(Spool(memory_bytes=memory)) as spool:
        plain = list(through_spool(spool, sent))
        batch = ChangeDecoder().decode(*frame(plain))
        model = Model().feed(plain_messages(sent))
        assert model.changes == Versions().rows(batch).to_pylist()
        assert model.transactions == batch.transactions.to_pylist()


OID = 0x4001
RELATION = Relation(OID, TableName("public", "t"), ReplicaIdentity.DEFAULT, (Column("id", 23, -1, key=True),))
RENAMED = Relation(OID, TableName("public", "renamed"), ReplicaIdentity.DEFAULT, RELATION.columns)
START, AGAIN, STOP = StreamStart(7, first=True), StreamStart(7, first=False), StreamStop()
COMMIT = StreamCommit(7, Lsn(100), Lsn(150), TIME)
MESSAGE = LogicalMessage(transactional=True, lsn=Lsn(1), prefix="auditlake", content=b"{}")
OTHER = StreamCommit(8, Lsn(200), Lsn(250), TIME)


def block(*messages: Message, xid: int = 7, sub: int | None = None, first: bool = True) -> list[bytes]:
    """Encode a block of the transaction `xid` with messages of the subtransaction `sub`."""
    inside = [encode_streamed(sub or xid, message) for message in messages]
    return [encode(StreamStart(xid, first)), *inside, encode(STOP)]


def insert(value: int) -> Insert:
    """Build an Insert of one value."""
    return Insert(OID, (str(value),))


def plain(payloads: list[bytes]) -> list[Message]:
    """Pass payloads through a spool, and decode the result."""
    return [decode(payload) for payload in through_spool(Spool(), payloads)]


def test_a_streamed_transaction_is_replayed_as_a_plain_one() -> None:
    """Begin, the messages without their xids, Commit; nothing is replayed before the Stream Commit."""
    sent = block(RELATION, insert(1)) + block(insert(2), sub=9, first=False)
    assert plain(sent) == []
    begin, commit = Begin(Lsn(100), TIME, 7), Commit(Lsn(100), Lsn(150), TIME)
    assert [begin, RELATION, insert(1), insert(2), commit] == plain([*sent, encode(COMMIT)])


def test_an_aborted_transaction_leaves_no_rows_and_no_relations() -> None:
    """Rows and Relation messages of an aborted transaction are dropped."""
    sent = [*block(RENAMED, insert(1)), encode(StreamAbort(7, 7)), *block(RELATION, insert(2), xid=8), encode(OTHER)]
    assert [RELATION, insert(2)] == plain(sent)[1:-1]


def test_rolling_back_a_savepoint_removes_only_its_rows() -> None:
    """Rows before and after the savepoint stay; the abort of an unknown subtransaction is ignored."""
    sent = [*block(RELATION, insert(1)), *block(insert(2), sub=9, first=False), encode(StreamAbort(7, 9))]
    sent += [encode(StreamAbort(7, 10)), *block(RELATION, insert(3), first=False), encode(COMMIT)]
    assert [RELATION, insert(1), RELATION, insert(3)] == plain(sent)[1:-1]


@pytest.mark.parametrize("memory", [0, 1 << 20], ids=["file", "memory"])
def test_a_message_that_may_have_been_rolled_back_is_in_doubt(memory: int) -> None:
    """The server sends every one with the top transaction's xid, and one before a change perhaps after it."""
    before = block(RELATION, insert(1), MESSAGE)
    after_change = [*block(RELATION, insert(2), sub=9, first=False), *block(MESSAGE, first=False)]
    cases = [before, [*before, *block(insert(2), sub=9, first=False)], [*block(RELATION, insert(1)), *after_change]]
    later = block(insert(3), first=False)
    for sent, more in product(cases, ([], later, [*block(insert(4), sub=10, first=False), encode(StreamAbort(7, 10))])):
        with contextlib.closing(Spool(memory_bytes=memory)) as spool:
            assert not [*through_spool(spool, [*sent, encode(StreamAbort(7, 9)), *more])]
            with pytest.raises(NotStreamed) as raised:
                spool.handle_boundary(encode(COMMIT))
            assert raised.value.end_lsn == 150


@pytest.mark.parametrize("memory", [0, 1 << 20], ids=["file", "memory"])
def test_a_doubt_ends_when_its_messages_are_removed(memory: int) -> None:
    """By a later rollback of a savepoint around it, or of the whole transaction."""
    before = [*block(RELATION, insert(1)), *block(insert(2), insert(3), sub=8, first=False)]
    doubted = [*before, *block(MESSAGE, first=False), *block(insert(4), sub=9, first=False), encode(StreamAbort(7, 9))]
    sent = [*doubted, *block(insert(5), sub=8, first=False)]
    replayed = through_spool(Spool(memory_bytes=memory), [*sent, encode(StreamAbort(7, 8)), encode(COMMIT)])
    assert [RELATION, insert(1)] == [decode(payload) for payload in replayed][1:-1]
    assert not [*through_spool(Spool(memory_bytes=memory), [*sent, encode(StreamAbort(7, 7))])]


@pytest.mark.parametrize("memory", [0, 1 << 20], ids=["file", "memory"])
def test_messages_between_changes_are_of_their_transaction(memory: int) -> None:
    """One before a change of the top transaction stays, one after two of the savepoint is rolled back with it."""
    rolled_back = [*block(insert(2), insert(3), sub=9, first=False), *block(MESSAGE, first=False)]
    sent = [*block(RELATION, MESSAGE, insert(1)), *rolled_back]
    sent += [*block(insert(4), sub=10, first=False), encode(StreamAbort(7, 10)), encode(StreamAbort(7, 9))]
    replayed = through_spool(Spool(memory_bytes=memory), [*sent, encode(COMMIT)])
    assert [RELATION, MESSAGE, insert(1)] == [decode(payload) for payload in replayed][1:-1]


def test_the_last_relation_message_to_arrive_is_in_force() -> None:
    """A plain one that arrived during the transaction is repeated before its Commit, an earlier one is not."""
    described = [encode(Begin(Lsn(50), TIME, 3)), encode(RENAMED), encode(Commit(Lsn(50), Lsn(60), TIME))]
    sent = [*block(RELATION, insert(1)), *described, encode(COMMIT)]
    assert [RELATION, insert(1), RENAMED] == plain(sent)[4:-1]
    assert [RELATION, insert(1)] == plain([*described, *block(RELATION, insert(1)), encode(COMMIT)])[4:-1]


def test_a_newer_streamed_relation_message_overrides_an_older_one() -> None:
    """Of two streamed transactions' Relation messages the last to arrive is in force, in either commit order."""
    sent = [*block(RELATION, insert(1)), *block(RENAMED, insert(2), xid=8)]
    committed = plain([*sent, encode(StreamCommit(8, Lsn(90), Lsn(95), TIME)), encode(COMMIT)])
    assert [RELATION, insert(1), RENAMED] == committed[5:-1]


def test_a_rolled_back_relation_message_has_no_effect() -> None:
    """It overrides neither an older one of another transaction nor the previous one of its own."""
    rolled_back = [*block(RENAMED, insert(2), sub=9, first=False), encode(StreamAbort(7, 9)), encode(COMMIT)]
    other = [*block(RELATION, insert(1), xid=8), *block(RELATION, insert(3)), *rolled_back, encode(OTHER)]
    assert [RELATION, insert(1), RELATION] == plain(other)[5:-1]
    described = [encode(Begin(Lsn(50), TIME, 3)), encode(RENAMED), encode(Commit(Lsn(50), Lsn(60), TIME))]
    mine = [*block(RELATION, insert(3)), *described, *rolled_back]
    assert [RELATION, insert(3), RENAMED] == plain(mine)[4:-1]


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ([encode(STOP)], "'E' out of order: outside blocks"),
        ([encode(START), encode(START)], "'S' out of order: in a block of transaction 7"),
        ([encode(AGAIN)], "'S' out of order: transaction 7, which has no block"),
        ([*block(), encode(START)], "'S' out of order: the first block of transaction 7, which has one already"),
        ([encode(COMMIT)], "'c' out of order: transaction 7, which has no block"),
        ([*block(), encode(COMMIT), encode(COMMIT)], "'c' out of order: transaction 7, which has no block"),
        (
            [encode(START), b"I\0\0\0", encode(STOP)],
            "'I' at offset 1: need 4 bytes, have 3; in a block of transaction 7",
        ),
        ([encode(START), encode(COMMIT)], "'c' out of order: in a block of transaction 7"),
        (
            [encode(START), encode(Begin(Lsn(1), TIME, 3)), encode(STOP)],
            "'B' at offset 1: need one of the tags RYIUDTMO; in a block of transaction 7",
        ),
    ],
)
def test_messages_out_of_order_are_refused(sent: list[bytes], problem: str) -> None:
    """Messages out of order raise, and so do messages of a block that are too short for an xid."""
    with pytest.raises(DecodeError) as caught:
        plain(sent)
    assert problem in caught.value.message


def test_an_abort_of_an_unknown_transaction_is_ignored() -> None:
    """PostgreSQL 18 sends an abort for some subtransactions of transactions that it has not streamed."""
    sent = [encode(StreamAbort(7, 8)), *block(RELATION, insert(1)), encode(StreamAbort(9, 9)), encode(COMMIT)]
    assert [RELATION, insert(1)] == plain(sent)[1:-1]


def test_two_phase_commit_is_refused() -> None:
    """A transaction acknowledged at PREPARE would be lost, so a slot with two-phase commit is refused."""
    with pytest.raises(WrongSource, match="sent a Begin Prepare message: it has two-phase commit"):
        Spool().handle_boundary(bytes.fromhex(BOUNDARIES["begin_prepare"][0]))


def spooled(folder: Path) -> bytes:
    """Return the content of the files without a name that this process has open in a folder."""
    found = [each for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return b"".join(each.read_bytes() for each in found if str(folder) in str(each.readlink()))


def test_a_large_transaction_is_moved_to_a_file(tmp_path: Path) -> None:
    """Memory is bounded; the file is encrypted, has no name, is truncated by a rollback, ends with the transaction."""
    spool = Spool(tmp_path, memory_bytes=100_000)
    sent = block(RELATION, *map(insert, range(5000))) + block(*map(insert, range(5000)), sub=9, first=False)

    def send(payloads: list[bytes]) -> Iterator[bytes]:
        return through_spool(spool, payloads, piece=100)

    assert list(send(sent)) == []
    assert spool.memory_used <= 100_000
    assert list(tmp_path.iterdir()) == []
    content = spooled(tmp_path)
    assert len(content) == spool.file_bytes
    assert RELATION.name.schema.encode() not in content
    before = spool.file_bytes
    assert list(send([encode(StreamAbort(7, 9))])) == []
    assert 0 < spool.file_bytes < 0.6 * before
    got = [decode(payload) for payload in send([encode(COMMIT)])]
    assert [RELATION, *map(insert, range(5000))] == got[1:-1]
    assert (spool.memory_used, spool.file_bytes) == (0, 0)


def test_a_missing_spool_folder_is_refused_at_the_start(tmp_path: Path) -> None:
    """The folder is checked before anything is streamed."""
    with pytest.raises(LakeUnusable, match=r"spool folder .*/none cannot be written: No such file"):
        Spool(tmp_path / "none")
