"""Turn "message number n is wrong" into an error that an operator can report. Slow; runs once per failure.

What is wrong inside a message is said by `wire.decode`; what is wrong about its place, by whoever refused it.
"""

from collections.abc import Mapping, Sequence

from auditlake.errors import DecodeError, InvariantBroken
from auditlake.lsn import Lsn
from auditlake.pgoutput.messages import Begin, Boundary, Commit, Message
from auditlake.pgoutput.tables import Known
from auditlake.pgoutput.wire import decode
from auditlake.relation import Relation

_OID_END = 5  # after the tag


def explain(
    payloads: Sequence[bytes], problem: str, known: Mapping[int, Known], open_lsn: Lsn | None
) -> DecodeError | InvariantBroken:
    """Build the error for the last of `payloads`; `known` and `open_lsn` are what held before the first."""
    *before, bad = payloads
    relations = {oid: each.relation for oid, each in known.items()}
    for payload in before:
        match _decoded(payload):
            case Begin(final_lsn=lsn):
                open_lsn = lsn
            case Commit():
                open_lsn = None
            case Relation() as relation:
                relations[relation.oid] = relation
            case _:
                pass
    where = f"{_relation(bad, relations)}{'outside transactions' if open_lsn is None else f'in transaction {open_lsn}'}"
    try:
        message = decode(bad)
    except DecodeError as error:
        return DecodeError(f"{error.message}; {where}")
    if not problem and isinstance(message, Boundary):
        problem = "bounds a streamed or prepared transaction, need plain ones"
    if not problem:
        return InvariantBroken(f"the two decoders disagree on a {type(message).__name__} message; {where}")
    return DecodeError(f"pgoutput message {chr(bad[0])!a}: {problem}; {where}")


def _decoded(payload: bytes) -> Message | None:
    if payload[:1] not in (b"B", b"C", b"R"):
        return None
    try:
        return decode(payload)
    except DecodeError:  # it is wrong too, but the one at fault was found first
        return None


def _relation(payload: bytes, relations: Mapping[int, Relation]) -> str:
    if payload[:1] not in (b"I", b"U", b"D") or len(payload) < _OID_END:
        return ""
    oid = int.from_bytes(payload[1:_OID_END])
    relation = relations.get(oid)
    return f"relation {relation.name if relation else 'unknown'} (oid {oid}) "
