"""Sealing beside capture and follow: real transactions are sealed, digests kept, and the lake proved without a JVM."""

import json
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from auditlake.config import DigestDatabase
from auditlake.errors import LakeUnusable
from auditlake.failpoints import After
from auditlake.ledger.blocks import has_ledger, read_blocks
from auditlake.ledger.digest import keep_note
from auditlake.ledger.signed_note import Checkpoint, PublicKey, open_note
from tests import command
from tests.capture_lake import make_lake
from tests.proof_verifier import verify
from tests.s3_server import on_disk

_TABLE = """
create table auditlake_digests (
  origin text, size bigint, digest text not null, kept timestamptz not null default now(), primary key (origin, size)
)
"""

pytestmark = [pytest.mark.pg, on_disk("digests are kept in a folder")]
_NO_JAVA = {"JAVA_HOME": "/"}


def test_capture_and_follow_seal_what_they_wrote_and_keep_digests(database: str, tmp_path: Path) -> None:
    """Without `[digest]` nothing is sealed; afterwards the lake is sealed from its beginning."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, name text, at timestamptz)")
        lake = make_lake(database, tmp_path / "lake")
        conn.execute("insert into t values (1, 'Ann', now()), (2, null, 'infinity'), (3, '', '0044-03-15 BC')")
        given: list[str | Path] = ["--until-current", "--source", database, "--lake", lake.root]
        done = command.run_here(["capture", *given])
        assert (done.code, has_ledger(lake)) == (0, False), done.stderr
        public = command.run_here(["digest", "--new-key", tmp_path / "key"]).stdout.strip()
        settings = json.dumps({"to": str(tmp_path / "digests"), "key": str(tmp_path / "key")})
        conn.execute("update t set name = 'Anne' where id = 1; delete from t where id = 2")
        done = command.run(["capture", *given], {**_NO_JAVA, "AUDITLAKE_DIGEST": settings})
        assert (done.code, "digest kept in" in done.stderr) == (0, True), done.stderr
        conn.execute("insert into t values (4, 'Zoë', null)")
        done = command.run(["follow", *given], {**_NO_JAVA, "AUDITLAKE_DIGEST": settings})
        assert done.code == 0, done.stderr
    digests = sorted((tmp_path / "digests").rglob("*.digest"))
    assert len(digests) == 2
    assert [block.entries for block in read_blocks(lake)] == [10, 3]
    arguments = [part for digest in digests for part in ("--digest", digest)]
    done = command.run(
        ["verify", *arguments, "--public-key", public, "--no-history", "--format", "json", "--lake", lake.root],
        _NO_JAVA,
    )
    proof = json.loads(done.stdout.splitlines()[-1])
    assert (done.code, proof["mismatches"], proof["digest"]) == (0, 0, str(digests[-1]))
    proved = command.run_here(["prove", "t", "1", "--digest", digests[-1], "--lake", lake.root])
    kinds = [record[1] for record in verify(json.loads(proved.stdout), public)]
    assert kinds == ["relation", "transaction", "transaction", "change", "change"]


def test_digests_are_kept_in_a_database_by_a_role_that_may_only_insert(database: str, tmp_path: Path) -> None:
    """Each tree once; without the table the failure is reported, and capture goes on. No password is shown."""
    parts = conninfo_to_dict(database)
    with psycopg.connect(database, autocommit=True) as conn:
        role = f"digests_{parts['dbname']}"
        conn.execute(f"create role {role} login password 'not-to-be-shown'")
        conn.execute("create table t (id int primary key)")
        lake = make_lake(database, tmp_path / "lake")
        conn.execute("insert into t values (1)")
        public = command.run_here(["digest", "--new-key", tmp_path / "key"]).stdout.strip()
        to = f"postgresql://{role}:not-to-be-shown@{parts['host']}:{parts['port']}/{parts['dbname']}"
        if str(parts["host"]).startswith("/"):
            to = f"postgresql://{role}:not-to-be-shown@/{parts['dbname']}?host={parts['host']}&port={parts['port']}"
        settings = {"AUDITLAKE_DIGEST": json.dumps({"to": to, "key": str(tmp_path / "key")})}
        given: list[str | Path] = ["--until-current", "--source", database, "--lake", lake.root]
        environment = {**_NO_JAVA, **settings}
        said = [command.run(["capture", *given], environment)]
        assert 'relation "auditlake_digests" does not exist' in said[0].stderr
        conn.execute(_TABLE)
        conn.execute(f"grant insert on auditlake_digests to {role}")
        conn.execute("insert into t values (2)")
        said.append(command.run(["capture", *given], environment))
        killed = environment | {"AUDITLAKE_FAILPOINT": After.DIGEST_STORED}
        said += [command.run(["digest", "--lake", lake.root], each) for each in (killed, environment)]
        rows = conn.execute("select origin, size, digest from auditlake_digests").fetchall()
    blocks = read_blocks(lake)
    assert [(origin, size) for origin, size, _ in rows] == [(blocks[-1].origin, blocks[-1].tree.size)]
    assert open_note(rows[0][2], PublicKey.parse(public), "digest").root == blocks[-1].tree.root
    assert [each.code for each in said] == [0, 0, -9, 0]
    assert ["cannot be kept in" in each.stderr for each in said] == [True, False, False, False]
    assert not any("not-to-be-shown" in each.stderr + each.stdout for each in said)


def test_a_database_that_does_not_answer_holds_up_no_end(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another session locks the table of the digests for good."""
    monkeypatch.setattr("auditlake.ledger.digest._ANSWER_S", 0.2)
    to = DigestDatabase(conninfo=SecretStr(database))
    with psycopg.connect(database) as conn:
        conn.execute(_TABLE)
        conn.commit()
        conn.execute("lock table auditlake_digests")
        with pytest.raises(LakeUnusable, match=r"cannot be kept in .*: no answer for 0.2 s"):
            keep_note(to, Checkpoint("auditlake/tests", 1, bytes(32)), "x")
