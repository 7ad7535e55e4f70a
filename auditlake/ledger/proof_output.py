"""Output of a comparison with digests, as text or JSON. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime

from auditlake.audit.json_output import line
from auditlake.ledger.verification import Mismatch, Proof


def proof_lines(proof: Proof, *, keys: bool) -> Iterator[str]:
    """Yield the mismatches as text, the first commit first."""
    for each in proof.mismatches:
        parts = [each.kind, each.place(keys=keys), f"file {each.file}" if each.file else "", each.detail or ""]
        yield "  ".join(part for part in parts if part)
    yield from (["and more"] if proof.more else [])
    yield from (f"note: {note}" for note in proof.notes)


def proof_json_lines(proof: Proof, *, keys: bool) -> Iterator[str]:
    """Yield the mismatches, then the proof, one JSON object per line."""
    yield from (line({"event": "mismatch", **_fields(each, keys=keys)}) for each in proof.mismatches)
    facts = {
        "proved": None if proof.proved is None else str(proof.proved),
        "sealed": str(proof.sealed),
        "digest": proof.by,
        "time": None if proof.sealed_us is None else _time(proof.sealed_us),
        "entries": proof.entries,
        "mismatches": len(proof.mismatches),
        "more": proof.more,
        "notes": list(proof.notes),
    }
    yield line({"event": "proof", **facts})


def _fields(each: Mismatch, *, keys: bool) -> dict[str, object]:
    fields: dict[str, object] = {
        "kind": each.kind,
        "table": each.table,
        "lsn": None if each.lsn is None else str(each.lsn),
        "ordinal": each.ordinal,
        "key": dict(each.key) if keys else {},
        "file": each.file,
        "detail": each.detail,
    }
    return {name: value for name, value in fields.items() if value not in (None, {})}


def proof_summary(proof: Proof) -> str:
    """Return in one sentence up to which commit the lake is proved."""
    compared = f"compared {proof.entries:,} entries of the ledger with the lake"
    if proof.mismatches:
        return f"{compared}: {len(proof.mismatches)}{'+' if proof.more else ''} are not what was sealed"
    if proof.proved is None or proof.sealed_us is None:
        return f"{compared}: no digest proves it"
    later = f"; up to {proof.sealed} it is sealed, but after this digest" if proof.sealed > proof.proved else ""
    return f"{compared}: proved up to commit {proof.proved}, as of {_time(proof.sealed_us)}, by {proof.by}{later}"


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).isoformat()
