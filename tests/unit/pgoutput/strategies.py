"""Hypothesis strategies: random messages, and random streams that a server could send."""

from datetime import UTC

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from auditlake.lsn import Lsn
from auditlake.pgoutput.decoder import (
    UNCHANGED,
    Begin,
    Boundary,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldKind,
    OldTuple,
    Origin,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
    Value,
)
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName

effort = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A few seconds per property, and no deadline: a busy machine must not fail a test."""

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6)
texts = st.text(max_size=6) | st.sampled_from(["", "0", "Ω" * 3, "a" * 300])
values: st.SearchStrategy[Value] = st.none() | st.just(UNCHANGED) | texts
old_values = st.none() | texts
u32 = st.integers(0, 2**32 - 1)
lsns = st.integers(0, 2**63 - 1).map(Lsn)
times = st.datetimes(timezones=st.just(UTC))
prefixes = st.sampled_from(["auditlake", "auditlake2", "", "ä"])
contents = st.sampled_from([b"", b"{}", b'{"user":"\xc3\xa9"}', b"\xff\x00"]) | st.binary(max_size=5)

columns = st.builds(Column, names, u32, st.integers(-1, 2**31 - 1), st.booleans())
relations = st.builds(
    Relation,
    u32,
    st.builds(TableName, names, names),
    st.sampled_from(ReplicaIdentity),
    st.lists(columns, max_size=4).map(tuple),
)
old_tuples = st.builds(OldTuple, st.sampled_from(OldKind), st.lists(old_values, max_size=4).map(tuple))
tuples = st.lists(values, max_size=4).map(tuple)

boundaries: st.SearchStrategy[Boundary] = st.one_of(
    st.builds(StreamStart, u32, st.booleans()),
    st.just(StreamStop()),
    st.builds(StreamCommit, u32, lsns, lsns, times),
    st.builds(StreamAbort, u32, u32),
    st.builds(StreamAbort, u32, u32, lsns, times),
)
in_blocks: st.SearchStrategy[Message] = st.one_of(
    relations,
    st.builds(Type, u32, names, names),
    st.builds(Insert, u32, tuples),
    st.builds(Update, u32, st.none() | old_tuples, tuples),
    st.builds(Delete, u32, old_tuples),
    st.builds(Truncate, st.lists(u32, max_size=3).map(tuple), st.booleans(), st.booleans()),
    st.builds(LogicalMessage, st.booleans(), lsns, names, contents),
)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Begin, lsns, times, u32),
    st.builds(Commit, lsns, lsns, times),
    st.builds(Origin, lsns, names),
    in_blocks,
    boundaries,
)


@st.composite
def streams(draw: st.DrawFn) -> list[Message]:
    """Draw the messages of some transactions; the last may be incomplete."""
    oids = draw(st.lists(u32, min_size=1, max_size=3, unique=True))
    known: dict[int, Relation] = {}
    stream: list[Message] = []
    lsn = draw(st.integers(0, 2**62))
    for _ in range(draw(st.integers(0, 4))):
        lsn += draw(st.integers(1, 100))
        time = draw(times)
        stream.append(Begin(Lsn(lsn), time, draw(u32)))
        if draw(st.booleans()):
            stream.append(Origin(Lsn(lsn), draw(names)))
        for _ in range(draw(st.integers(0, 6))):
            changes: list[Message] = draw(_change(oids, known))
            stream += changes
        stream.append(Commit(Lsn(lsn), Lsn(lsn + 1), time))
        if draw(st.integers(0, 3)) == 0:
            stream.append(LogicalMessage(transactional=False, lsn=Lsn(lsn), prefix="auditlake", content=b"x"))
    unfinished = draw(st.booleans())
    if unfinished:
        del stream[-draw(st.integers(1, 3)) :]
    return stream


@st.composite
def _change(draw: st.DrawFn, oids: list[int], known: dict[int, Relation]) -> list[Message]:
    kind = draw(st.sampled_from("IIUUUDDTMY"))
    if kind == "M":
        return [LogicalMessage(transactional=True, lsn=draw(lsns), prefix=draw(prefixes), content=draw(contents))]
    if kind == "Y":
        used = [column.type_oid for relation in known.values() for column in relation.columns]
        oid = draw(st.sampled_from(used) | u32 if used else u32)
        return [Type(oid, draw(names | st.just("pg_catalog")), draw(names | st.sampled_from(["int4", "_int4"])))]
    wanted = (
        draw(st.lists(st.sampled_from(oids), unique=True, min_size=1)) if kind == "T" else [draw(st.sampled_from(oids))]
    )
    described: list[Message] = []
    for oid in wanted:
        described += draw(_description(oid, known))
    if kind == "T":
        return [*described, Truncate(tuple(wanted), cascade=draw(st.booleans()), restart_identity=draw(st.booleans()))]
    return [*described, draw(_row_change(kind, known[wanted[0]]))]


@st.composite
def _description(draw: st.DrawFn, oid: int, known: dict[int, Relation]) -> list[Message]:
    again = draw(st.sampled_from(["no", "no", "no", "same", "new"]))
    if oid not in known or again == "new":
        drawn = draw(relations)
        known[oid] = Relation(oid, drawn.name, drawn.replica_identity, drawn.columns)
        return [known[oid]]
    return [known[oid]] if again == "same" else []


@st.composite
def _row_change(draw: st.DrawFn, kind: str, relation: Relation) -> Message:
    width = len(relation.columns)
    new = tuple(draw(st.lists(values, min_size=width, max_size=width)))
    identity = OldKind.FULL if relation.replica_identity == ReplicaIdentity.FULL else OldKind.KEY
    old = OldTuple(identity, tuple(draw(st.lists(old_values, min_size=width, max_size=width))))
    if kind == "I":
        return Insert(relation.oid, new)
    if kind == "D":
        return Delete(relation.oid, old)
    return Update(relation.oid, draw(st.sampled_from([old, None])), new)
