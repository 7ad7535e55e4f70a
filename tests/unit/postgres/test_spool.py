"""The spool gives back what the server would have sent without streaming, in bounded memory, and refuses disorder."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.errors import DecodeError, LakeUnusable, WrongSource
from auditlake.lsn import Lsn
from auditlake.pgoutput.columnar import ChangeDecoder
from auditlake.pgoutput.messages import (
    Begin,
    BeginPrepare,
    Commit,
    Insert,
    Message,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
)
from auditlake.pgoutput.wire import decode
from auditlake.postgres.spool import Spool
from auditlake.relation import Column, Relation, TableName
from tests.unit.pgoutput.encode import encode, encode_streamed
from tests.unit.pgoutput.framing import frame
from tests.unit.pgoutput.model import Model, version
from tests.unit.pgoutput.strategies import effort
from tests.unit.pgoutput.streamed_model import plain_messages, through_spool
from tests.unit.pgoutput.streaming_server import TIME, Row, StreamingServer

KINDS = ["change"] * 6 + ["stream"] * 3 + ["savepoint", "savepoint", "rollback", "rollback", "release"]
KINDS += ["commit", "abort", "plain", "plain", "rename"]


def random_steps(seed: int) -> list[tuple[str, int, int]]:
    """Draw steps from a seed: what a spool has to get right needs many of them, more than Hypothesis likes to draw."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    steps = [(chance.choice(KINDS), chance.randrange(3), chance.randrange(12)) for _ in range(chance.choice([15, 100]))]
    return [*steps, *((kind, session, seed) for session in range(3) for kind in ("change", "commit")), ("plain", 0, 2)]


steps = st.integers(0, 2**32).map(random_steps)
first_xids = st.sampled_from([700, 2**32 - 5, 2**32 - 20])
limits = st.sampled_from([0, 2000, 1 << 20])


@given(steps, first_xids, limits, st.integers(1, 5))
@effort
def test_gives_what_was_committed(steps: list[tuple[str, int, int]], xid: int, memory: int, piece: int) -> None:
    """Rows of every committed transaction, whole and in commit order, under the names their tables had then."""
    server = StreamingServer(xid)
    for step in steps:
        server.step(*step)
    spool = Spool(memory_bytes=memory)
    decoder = ChangeDecoder(lambda relation, _: version(relation))
    plain = list(through_spool(spool, server.payloads, piece))
    cut = len(plain) // 2
    rows = [row for half in (plain[:cut], plain[cut:]) for row in decoder.decode(*frame(half)).changes.to_pylist()]
    spool.close()
    found: dict[int, list[Row]] = {}
    for row in rows:
        assert row["ordinal"] == len(found.setdefault(row["lsn"], []))
        found[row["lsn"]].append((row["table"], row["new"][0]))
    assert [(lsn, rows) for lsn, rows in server.committed if rows] == list(found.items())


@given(steps, limits, st.data())
@effort
def test_a_damaged_byte_gives_an_error_or_the_plain_answer(
    steps: list[tuple[str, int, int]], memory: int, data: st.DataObject
) -> None:
    """No damage gets out as anything but an error of the protocol, or what the plain messages mean."""
    server = StreamingServer(700)
    for step in steps:
        server.step(*step)
    payloads = [bytearray(payload) for payload in server.payloads]
    damaged = data.draw(st.sampled_from(payloads))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    sent = [bytes(payload) for payload in payloads]
    with contextlib.suppress(DecodeError, WrongSource), contextlib.closing(Spool(memory_bytes=memory)) as spool:
        plain = list(through_spool(spool, sent))
        found = ChangeDecoder(lambda relation, _: version(relation)).decode(*frame(plain))
        model = Model().feed(plain_messages(sent))
        assert model.changes == found.changes.to_pylist()
        assert model.transactions == found.transactions.to_pylist()


OID = 0x4001
RELATION = Relation(OID, TableName("public", "t"), "d", (Column("id", 23, -1, key=True),))
RENAMED = Relation(OID, TableName("public", "renamed"), "d", RELATION.columns)
START, AGAIN, STOP = StreamStart(7, first=True), StreamStart(7, first=False), StreamStop()
COMMIT = StreamCommit(7, Lsn(100), Lsn(150), TIME)
OTHER = StreamCommit(8, Lsn(200), Lsn(250), TIME)


def block(*messages: Message, xid: int = 7, sub: int | None = None, first: bool = True) -> list[bytes]:
    """Spell a block of the transaction `xid`, its messages those of the subtransaction `sub`."""
    inside = [encode_streamed(sub or xid, message) for message in messages]
    return [encode(StreamStart(xid, first)), *inside, encode(STOP)]


def insert(value: int) -> Insert:
    """Insert a value."""
    return Insert(OID, (str(value),))


def plain(payloads: list[bytes]) -> list[Message]:
    """Send payloads through a spool and read what comes."""
    return [decode(payload) for payload in through_spool(Spool(), payloads)]


def test_a_transaction_comes_as_a_plain_one() -> None:
    """Begin, the messages without their xids, Commit; and nothing before the Stream Commit."""
    sent = block(RELATION, insert(1)) + block(insert(2), sub=9, first=False)
    assert plain(sent) == []
    begin, commit = Begin(Lsn(100), TIME, 7), Commit(Lsn(100), Lsn(150), TIME)
    assert [begin, RELATION, insert(1), insert(2), commit] == plain([*sent, encode(COMMIT)])


def test_an_aborted_transaction_leaves_no_trace() -> None:
    """Neither rows nor what it said of relations."""
    sent = [*block(RENAMED, insert(1)), encode(StreamAbort(7, 7)), *block(RELATION, insert(2), xid=8), encode(OTHER)]
    assert [RELATION, insert(2)] == plain(sent)[1:-1]


def test_a_subtransaction_takes_what_is_inside_it() -> None:
    """The rows of a rolled-back savepoint go, those before and after it stay; one never seen is no error."""
    sent = [*block(RELATION, insert(1)), *block(insert(2), sub=9, first=False), encode(StreamAbort(7, 9))]
    sent += [encode(StreamAbort(7, 10)), *block(RELATION, insert(3), first=False), encode(COMMIT)]
    assert [RELATION, insert(1), RELATION, insert(3)] == plain(sent)[1:-1]


def test_the_description_that_came_last_holds() -> None:
    """A plain one that came while the transaction was open is repeated, one that came before it is not."""
    described = [encode(Begin(Lsn(50), TIME, 3)), encode(RENAMED), encode(Commit(Lsn(50), Lsn(60), TIME))]
    sent = [*block(RELATION, insert(1)), *described, encode(COMMIT)]
    assert [RELATION, insert(1), RENAMED] == plain(sent)[4:-1]
    assert [RELATION, insert(1)] == plain([*described, *block(RELATION, insert(1)), encode(COMMIT)])[4:-1]


def test_a_streamed_description_outlives_an_older_one() -> None:
    """Of two streamed transactions the one whose description came last has the word, whichever commits last."""
    sent = [*block(RELATION, insert(1)), *block(RENAMED, insert(2), xid=8)]
    committed = plain([*sent, encode(StreamCommit(8, Lsn(90), Lsn(95), TIME)), encode(COMMIT)])
    assert [RELATION, insert(1), RENAMED] == committed[5:-1]


def test_a_rolled_back_description_counts_for_nothing() -> None:
    """Neither against an older one of another transaction, nor against the one before it of its own."""
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
def test_refuses_disorder(sent: list[bytes], problem: str) -> None:
    """Messages out of order, and messages of a block that are too short for an xid."""
    with pytest.raises(DecodeError) as caught:
        plain(sent)
    assert problem in caught.value.message


def test_an_abort_of_what_was_not_sent_is_nothing() -> None:
    """PostgreSQL 18 sends one for some subtransactions of transactions that it has not streamed."""
    sent = [encode(StreamAbort(7, 8)), *block(RELATION, insert(1)), encode(StreamAbort(9, 9)), encode(COMMIT)]
    assert [RELATION, insert(1)] == plain(sent)[1:-1]


def test_refuses_two_phase_commit() -> None:
    """What was acknowledged at PREPARE would be lost, so a slot that sends it is not ours."""
    with pytest.raises(WrongSource, match="sent a BeginPrepare message: it has two-phase commit"):
        Spool().bound(encode(BeginPrepare(Lsn(1), Lsn(2), TIME, 7, "gid")))


def test_a_large_transaction_goes_to_a_file(tmp_path: Path) -> None:
    """Memory is bounded; the file has no name, shrinks with a rollback and is gone with the transaction."""
    spool = Spool(tmp_path, memory_bytes=100_000)
    sent = block(RELATION, *map(insert, range(5000))) + block(*map(insert, range(5000)), sub=9, first=False)

    def send(payloads: list[bytes]) -> Iterator[bytes]:
        return through_spool(spool, payloads, piece=100)

    assert list(send(sent)) == []
    assert spool.memory_used <= 100_000
    assert list(tmp_path.iterdir()) == []
    before = spool.file_bytes
    assert list(send([encode(StreamAbort(7, 9))])) == []
    assert 0 < spool.file_bytes < 0.6 * before
    got = [decode(payload) for payload in send([encode(COMMIT)])]
    assert [RELATION, *map(insert, range(5000))] == got[1:-1]
    assert (spool.memory_used, spool.file_bytes) == (0, 0)


def test_says_where_the_spool_should_be(tmp_path: Path) -> None:
    """A folder that is not there is found before anything is streamed."""
    with pytest.raises(LakeUnusable, match=r"spool folder .*/none cannot be written: No such file"):
        Spool(tmp_path / "none")
