"""Digests in a table of a PostgreSQL database, best on a server whose owner does not write the lake.

The owner of the database makes the table (`TABLE`). The role that keeps digests needs INSERT alone, so it cannot read,
change or delete one. The first digest of a tree stays.

Authority: PostgreSQL's documentation, INSERT, "ON CONFLICT Clause"
"""

from auditlake.config import DigestDatabase
from auditlake.errors import LakeUnusable, SourceAway
from auditlake.ledger.signed_note import Checkpoint

TABLE = """
create table auditlake_digests (
  origin text, size bigint, digest text not null, kept timestamptz not null default now(), primary key (origin, size)
)
"""
_INSERT = "insert into auditlake_digests (origin, size, digest) values (%s, %s, %s) on conflict do nothing"
_CONNECT_S, _ANSWER_S = 10, 10.0


def insert_digest(to: DigestDatabase, checkpoint: Checkpoint, note: str) -> bool:
    """Keep a digest; return whether it is the first of its tree.

    Raises LakeUnusable if the database does not take it.
    """
    import psycopg  # noqa: PLC0415 - other destinations do not need it

    from auditlake.source.connection import hung_up_after  # noqa: PLC0415 - as above

    conninfo = to.conninfo.get_secret_value()
    try:
        with (
            psycopg.connect(conninfo, connect_timeout=_CONNECT_S, application_name="auditlake digest") as conn,
            hung_up_after(conn.fileno(), _ANSWER_S),
        ):
            conn.autocommit = True
            return conn.execute(_INSERT, (checkpoint.origin, checkpoint.size, note)).rowcount == 1
    except SourceAway as exc:
        raise _not_kept(to, f"no answer for {_ANSWER_S:g} s") from exc
    except psycopg.Error as exc:
        raise _not_kept(to, exc.diag.message_primary or "no connection") from exc


def _not_kept(to: DigestDatabase, reason: str) -> LakeUnusable:
    return LakeUnusable(
        f"the digest cannot be kept in {to}: {reason}",
        "Fix `to` in [digest], or make the table, see docs/proof-and-erasure.md.",
    )
