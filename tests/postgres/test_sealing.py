"""Sealing beside capture and follow: real transactions are sealed, digests kept, and the lake proved without a JVM."""

import json
from pathlib import Path

import psycopg
import pytest

from auditlake.ledger.blocks import has_ledger, read_blocks
from tests import command
from tests.capture_lake import make_lake
from tests.proof_verifier import verify
from tests.s3_server import on_disk

pytestmark = [pytest.mark.pg, on_disk("digests are kept in a folder")]
_NO_JAVA = {"JAVA_HOME": "/"}


def test_capture_and_follow_seal_what_they_wrote_and_keep_digests(database: str, tmp_path: Path) -> None:
    """Without `[digest]` nothing is sealed; afterwards the lake is sealed from its beginning."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, name text, at timestamptz)")
        lake = make_lake(database, tmp_path / "lake")
        conn.execute("insert into t values (1, 'Ann', now()), (2, null, 'infinity'), (3, '', '0044-03-15 BC')")
        given: list[str | Path] = ["--until-current", "--source", database, "--lake", lake.root]
        done = command.run(["capture", *given], _NO_JAVA)
        assert (done.code, has_ledger(lake)) == (0, False), done.stderr
        public = command.run(["digest", "--new-key", tmp_path / "key"]).stdout.strip()
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
    proved = command.run(["prove", "t", "1", "--digest", digests[-1], "--lake", lake.root], _NO_JAVA)
    kinds = [record[1] for record in verify(json.loads(proved.stdout), public)]
    assert kinds == ["relation", "transaction", "transaction", "change", "change"]
