"""Turn "message number n is malformed" into an error that an operator can report. Slow; runs once per failure.

`wire.decode` describes a message that is malformed in itself; the check that refused it describes one that is out of
place.
"""

from collections.abc import Mapping, Sequence

from auditlake.errors import DecodeError, InvariantBroken
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_layout import RelationVersion
from auditlake.pgoutput.decoder import decode
from auditlake.pgoutput.messages import Begin, Boundary, Commit, Message
from auditlake.relation import Relation

_OID_END = 5  # after the tag


def explain(
    payloads: Sequence[bytes], problem: str, described: Mapping[int, RelationVersion], open_lsn: Lsn | None
) -> DecodeError | InvariantBroken:
    """Build the error for the last of `payloads`; `described` and `open_lsn` are the state before the first."""
    *before, bad = payloads
    relations = {oid: version.relation for oid, version in described.items()}
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
    except DecodeError:  # malformed too, but the checks refused the last one first
        return None


def _relation(payload: bytes, relations: Mapping[int, Relation]) -> str:
    if payload[:1] not in (b"I", b"U", b"D") or len(payload) < _OID_END:
        return ""
    oid = int.from_bytes(payload[1:_OID_END])
    relation = relations.get(oid)
    return f"relation {relation.name if relation else 'unknown'} (oid {oid}) "
