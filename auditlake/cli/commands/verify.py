"""The command verify: compare a lake with its source."""

from __future__ import annotations  # settings are imported when a command runs

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from auditlake.cli.options import FILE, Seconds, lake_of, with_recorded_names, with_settings
from auditlake.errors import AuditlakeError, BadUsage
from auditlake.instants import to_time
from auditlake.messages import say
from auditlake.settings.mask_rules import Masking
from auditlake.values.escapes import visible

if TYPE_CHECKING:  # imports Spark
    from auditlake.config import Settings
    from auditlake.ledger.verification import Mismatch, Proof
    from auditlake.verify.verify import VerifyRequest


@click.command()
@with_settings
@click.option("--table", "patterns", multiple=True, metavar="PATTERN", help="Only these tables: orders, public.*.")
@click.option(
    "--digest",
    "digests",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Compare the lake with this digest of it, without the source; may be repeated.",
)
@click.option("--public-key", metavar="KEY", help="The key that signed the digests: its text, or the file that has it.")
@click.option("--no-source", is_flag=True, help="Check only the lake.")
@click.option("--no-history", is_flag=True, help="Check only files, and the latest state against the source.")
@click.option(
    "--timeout",
    type=Seconds(min=0),
    default=300.0,
    show_default=True,
    help="Seconds to wait for writing transactions to end, and for capture to catch up.",
)
@click.option(
    "--connections",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Connections that read the source at a time.",
)
@click.option(
    "--bytes-per-s",
    type=click.IntRange(min=1),
    help="Bytes to read from the source per second, at most [copy_bytes_per_s].",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Findings listed per table, at most."
)
@click.option("--no-keys", is_flag=True, help="Report tables and columns, but no keys of rows.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def verify(
    settings: Settings,
    *,
    digests: tuple[Path, ...],
    public_key: str | None,
    no_keys: bool,
    **given: Any,  # noqa: ANN401 - options
) -> None:
    """Compare the lake with its source at one LSN, row by row, and every history with its changes.

    With --digest, compare it with the signed content: name the first transaction, row, table and file that was changed,
    or up to which commit the lake is proved. Reports keys and columns that differ, never values. Exits 0 if all is
    equal, 6 if the lake is damaged, 7 if a table could not be verified.

    \b
    Example:
      auditlake verify
      auditlake verify --table public.orders --bytes-per-s 10000000
      auditlake verify --no-source --format json
      auditlake verify --digest 2026-11-24.digest --public-key digest.pub
    """
    from auditlake.spark.session import spark_session
    from auditlake.terminal import working
    from auditlake.verify.report import as_json_lines, as_lines
    from auditlake.verify.verify import verify as run

    no_source, form = given["no_source"], given["form"]
    if no_source and given["no_history"]:
        raise BadUsage("--no-source and --no-history exclude each other", "Give one of them, or neither.")
    if bool(digests) != (public_key is not None):
        raise BadUsage("--digest and --public-key need each other", "auditlake digest --show-key prints the key.")
    if digests:
        _compare(settings, digests, str(public_key), {**given, "keys": not no_keys})
        if given["no_history"]:
            return
    offline = no_source or bool(digests)
    request = _request(settings, None if offline else settings.source_required(), given)
    with working("verifying"):
        report = run(request, lambda: spark_session(settings.spark), say)
    _show((as_json_lines if form == "json" else as_lines)(report, keys=not no_keys), report.summary(), report.failure())


def _show(lines: Iterable[str], summary: str, failure: AuditlakeError | None) -> None:
    for line in lines:
        click.echo(visible(line))
    say(summary)
    if failure:
        raise failure


def _compare(settings: Settings, digests: tuple[Path, ...], public_key: str, given: Mapping[str, Any]) -> None:
    """Compare the lake with digests; raises LakeUnusable if it differs."""
    from auditlake.ledger.digest import read_digest, read_public_key
    from auditlake.ledger.signed_note import open_note
    from auditlake.ledger.verification import VerifiedDigest, verify_digests
    from auditlake.terminal import working

    key = read_public_key(public_key)
    notes = {str(path): read_digest(path) for path in digests}
    evidence = [VerifiedDigest(name, open_note(note, key, name)) for name, note in notes.items()]
    with working("comparing the lake with its digests"):
        proof = verify_digests(lake_of(settings), evidence, given["limit"])
    lines = (_proof_json_lines if given["form"] == "json" else _proof_lines)(proof, keys=given["keys"])
    _show(lines, _proof_summary(proof), proof.failure())


def _proof_lines(proof: Proof, *, keys: bool) -> Iterator[str]:
    """Yield the mismatches as text, the first commit first."""
    for each in proof.mismatches:
        parts = [each.kind, each.place(keys=keys), f"file {each.file}" if each.file else "", each.detail or ""]
        yield "  ".join(part for part in parts if part)
    yield from (["and more"] if proof.more else [])
    yield from (f"note: {note}" for note in proof.notes)


def _proof_json_lines(proof: Proof, *, keys: bool) -> Iterator[str]:
    """Yield the mismatches, then the proof, one JSON object per line."""
    from auditlake.audit.json_output import line as json_line

    yield from (json_line({"event": "mismatch", **_fields(each, keys=keys)}) for each in proof.mismatches)
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
    yield json_line({"event": "proof", **facts})


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


def _proof_summary(proof: Proof) -> str:
    """Return in one sentence up to which commit the lake is proved."""
    compared = f"compared {proof.entries:,} entries of the ledger with the lake"
    if proof.mismatches:
        fits = f"; its ledger is that of {proof.by} up to commit {proof.proved}" if proof.proved is not None else ""
        return f"{compared}: {len(proof.mismatches)}{'+' if proof.more else ''} not as sealed{fits}"
    if proof.proved is None or proof.sealed_us is None:
        return f"{compared}: no digest proves it"
    later = f"; up to {proof.sealed} it is sealed, but after this digest" if proof.sealed > proof.proved else ""
    return f"{compared}: proved up to commit {proof.proved}, as of {_time(proof.sealed_us)}, by {proof.by}{later}"


def _time(time_us: int) -> str:
    return to_time(time_us).replace(microsecond=0).isoformat()


def _request(settings: Settings, conninfo: str | None, given: Mapping[str, Any]) -> VerifyRequest:
    from auditlake.snapshot.scheduler import SourceLoad
    from auditlake.verify.verify import VerifyRequest

    return VerifyRequest(
        lake_of(with_recorded_names(settings)),
        conninfo,
        given["patterns"],
        SourceLoad(given["connections"], given["bytes_per_s"] or settings.copy_bytes_per_s),
        given["timeout"],
        given["limit"],
        history=not given["no_history"],
        streaming=settings.how_to_stream,
        masking=Masking() if conninfo is None else settings.masking,
    )


COMMANDS = (verify,)
