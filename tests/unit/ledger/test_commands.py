"""The commands seal, digest, prove and verify --digest; an independent verifier checks the proofs."""

import json
import random
import re
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.layout import Lake
from auditlake.ledger.blocks import BLOCKS_SCHEMA, ENTRIES_SCHEMA
from auditlake.lsn import Lsn
from tests.command import Done, run_here
from tests.full_disk import file_size_limit
from tests.ledger_lake import Rows, edit_rows, where
from tests.proof_verifier import verify
from tests.random_seeds import random_seeds
from tests.s3_server import copy_lake
from tests.small_lake import ORDERS, write_lake_with_manifest


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Write a lake that was never sealed."""
    return write_lake_with_manifest(tmp_path / "lake")


@pytest.fixture
def key(tmp_path: Path) -> tuple[Path, str]:
    """Make a key with the command; return its file and the public key."""
    done = run_here(["digest", "--new-key", tmp_path / "key"])
    assert done.code == 0
    return tmp_path / "key", done.stdout.strip()


def _digest(lake: Lake, key: Path, to: Path) -> Done:
    done = run_here(["digest", "--key", key, "--lake", lake.root])
    to.write_text(done.stdout)
    return done


def _verify(lake: Lake, public: str, *digests: Path, form: str = "json") -> Done:
    given = [part for digest in digests for part in ("--digest", digest)]
    arguments = ["verify", *given, "--public-key", public, "--no-history", "--format", form, "--lake", lake.root]
    return run_here(arguments)


def test_a_key_is_written_for_its_owner_only_and_never_printed(key: tuple[Path, str]) -> None:
    """A second key does not replace it."""
    path, public = key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().strip().split("+", 4)[-1] not in public
    assert run_here(["digest", "--key", path, "--show-key"]).stdout.strip() == public
    assert run_here(["digest", "--new-key", path]).code == 2


def test_no_part_of_a_key_stays_on_a_full_disk(tmp_path: Path) -> None:
    """It would keep a whole one from being made under the same name."""
    with file_size_limit(10):
        done = run_here(["digest", "--new-key", tmp_path / "key"])
    assert (done.code, f"{tmp_path / 'key'} cannot be created: File too large" in done.stderr) == (2, True)
    assert run_here(["digest", "--new-key", tmp_path / "key"]).code == 0


def test_a_lake_is_proved_and_then_its_damage_is_named(lake: Lake, key: tuple[Path, str], tmp_path: Path) -> None:
    """As an operator does it: digest, verify, and after a change verify again."""
    digest = tmp_path / "first.digest"
    assert _digest(lake, key[0], digest).code == 0
    done = _verify(lake, key[1], digest)
    (proof,) = map(json.loads, done.stdout.splitlines())
    assert (done.code, proof["proved"], proof["mismatches"], proof["digest"]) == (0, "0/300", 0, str(digest))
    (file,) = edit_rows(lake.changes, where("ordinal", 2, lambda texts: [texts[0], "Eve"], "new"))
    done = _verify(lake, key[1], digest)
    first, proof = map(json.loads, done.stdout.splitlines())
    assert (done.code, proof["mismatches"]) == (6, 1)
    assert (first["table"], first["lsn"], first["ordinal"], first["file"]) == ("public.customers", "0/250", 2, file)
    assert "Eve" not in done.stdout + done.stderr


def test_the_text_says_the_same(lake: Lake, key: tuple[Path, str], tmp_path: Path) -> None:
    """The last line of stderr names the first row, and stdout all of them."""
    digest = tmp_path / "first.digest"
    _digest(lake, key[0], digest)
    assert "proved up to commit 0/300" in _verify(lake, key[1], digest, form="text").stderr
    edit_rows(lake.changes, where("lsn", 0x300, lambda _: 5, "xid"))
    done = _verify(lake, key[1], digest, form="text")
    assert done.stdout.startswith("changed change  public.orders, commit 0/300, change 0  file part-")
    assert f"1 not as sealed; its ledger is that of {digest} up to commit 0/300" in done.stderr
    assert "first: changed change: public.orders, commit 0/300, change 0" in done.stderr


def test_a_forged_digest_is_refused(lake: Lake, key: tuple[Path, str], tmp_path: Path) -> None:
    """Before anything is compared."""
    digest = tmp_path / "forged.digest"
    _digest(lake, key[0], digest)
    digest.write_text(digest.read_text().replace("\n1\n", "\n2\n"))
    done = _verify(lake, key[1], digest)
    assert (done.code, done.stdout) == (2, "")
    assert "not signed by auditlake" in done.stderr


def test_a_digest_needs_the_key_that_verifies_it(lake: Lake, tmp_path: Path) -> None:
    """A digest without its key proves nothing, and a key without a digest neither."""
    assert run_here(["verify", "--digest", tmp_path / "x", "--lake", lake.root]).code == 2
    assert run_here(["verify", "--public-key", "x", "--lake", lake.root]).code == 2


def test_a_digest_needs_a_key_to_sign(lake: Lake, monkeypatch: pytest.MonkeyPatch, key: tuple[Path, str]) -> None:
    """It may be in the environment; what is sealed is the same."""
    monkeypatch.delenv("AUDITLAKE_DIGEST_KEY", raising=False)
    assert run_here(["digest", "--lake", lake.root]).code == 3
    monkeypatch.setenv("AUDITLAKE_DIGEST_KEY", key[0].read_text())
    first = run_here(["digest", "--lake", lake.root])
    again = run_here(["digest", "--sealed", "--lake", lake.root])
    assert (first.code, first.stdout) == (0, again.stdout)


def test_a_digest_is_kept_where_the_settings_say(
    lake: Lake, key: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under origin and size, and once: a later one of the same tree does not replace it."""
    settings = {"to": str(tmp_path / "kept"), "key": str(key[0])}
    monkeypatch.setenv("AUDITLAKE_DIGEST", json.dumps(settings))
    done = run_here(["digest", "--lake", lake.root])
    (kept,) = (tmp_path / "kept").rglob("*.digest")
    assert (kept.name, kept.read_text()) == ("00000000000000000001.digest", done.stdout)
    assert kept.parent.name.startswith("auditlake_1_d_")
    assert run_here(["digest", "--lake", lake.root]).code == 0
    assert _verify(lake, key[1], kept).code == 0


def _prove(lake: Lake, *what: str | Path) -> dict[str, Any]:
    done = run_here(["prove", *what, "--lake", lake.root])
    assert done.code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_proof_of_a_row_says_what_its_history_lacks(lake: Lake, key: tuple[Path, str], tmp_path: Path) -> None:
    """A gap of its table; the proof is of what is known."""
    _digest(lake, key[0], tmp_path / "digest")
    record_gaps(lake, [Gap(ORDERS, Lsn(0x160), Lsn(0x1F0), "lost")])
    told = {table: run_here(["prove", table, "1", "--lake", lake.root]) for table in ("orders", "customers")}
    assert [each.code for each in told.values()] == [0, 0]
    notice = "public.orders is not known between 0/160 and 0/1F0: lost"
    assert [notice in each.stderr for each in told.values()] == [True, False]


def test_a_transaction_is_proved_to_an_independent_verifier(lake: Lake, key: tuple[Path, str], tmp_path: Path) -> None:
    """Its own entry, its changes, and the names of their columns."""
    digest = tmp_path / "digest"
    _digest(lake, key[0], digest)
    proof = _prove(lake, "xid:12", "--digest", digest)
    records = verify(proof, key[1])
    assert [(record[1], record[2]) for record in records if record[1] != "relation"] == [
        ("transaction", "592"),
        *[("change", "592")] * 3,
    ]
    assert [record[5:7] for record in records if record[1] == "relation"] == [
        ["public", "orders"],
        ["public", "customers"],
    ]
    assert "1\0,Anne" in proof["entries"][-1]["values"]


def test_the_history_of_a_row_is_proved_from_its_first_copy_on(lake: Lake) -> None:
    """Without a digest, to the tree of all that is sealed."""
    run_here(["seal", "--lake", lake.root])
    proof = _prove(lake, "orders", "1")
    kinds = [(record[1], record[2]) for record in verify(proof, None)]
    assert kinds == [
        ("relation", "1"),
        ("copy", "public"),
        ("row", "public"),
        ("transaction", "336"),
        ("transaction", "592"),
        ("change", "336"),
        ("change", "592"),
    ]


@pytest.mark.parametrize("part", ["record", "values", "secret", "place", "leaf"])
def test_a_changed_proof_does_not_verify(lake: Lake, part: str) -> None:
    """Each part of it is bound to the root."""
    run_here(["seal", "--lake", lake.root])
    proof = _prove(lake, "xid:12")
    entry = proof["entries"][-1]
    entry[part] = entry[part] + 1 if isinstance(entry[part], int) else f"{entry[part]}0"
    with pytest.raises((AssertionError, KeyError, IndexError, ValueError)):
        verify(proof, None)


def test_what_is_not_sealed_cannot_be_proved(lake: Lake) -> None:
    """And what was changed since neither."""
    assert run_here(["prove", "xid:12", "--lake", lake.root]).code == 7
    run_here(["seal", "--lake", lake.root])
    edit_rows(lake.changes, where("ordinal", 2, lambda texts: [texts[0], "Eve"], "new"))
    done = run_here(["prove", "xid:12", "--lake", lake.root])
    assert (done.code, done.stdout) == (7, "")
    assert "not as it was sealed" in done.stderr


def test_a_changed_ledger_is_no_bug(lake: Lake, key: tuple[Path, str], tmp_path: Path) -> None:
    """Whatever is in one column of it: each command answers, or refuses the lake."""
    digest, kept = tmp_path / "digest", tmp_path / "kept"
    assert _digest(lake, key[0], digest).code == 0
    copy_lake(lake, kept)
    for seed in random_seeds():
        chance = random.Random(seed)  # noqa: S311 - no secret
        attacked = copy_lake(Lake(kept), tmp_path / "attacked" / str(seed))
        schema, place = chance.choice(
            [(BLOCKS_SCHEMA, attacked.ledger_blocks), (ENTRIES_SCHEMA, attacked.ledger_entries)]
        )
        column = chance.choice(schema.names)
        value = chance.choice(_OTHERS[str(schema.field(column).type)])
        with suppress(AssertionError):  # the column had that value
            edit_rows(place, _with_column(column, value))
        lines = (
            ["verify", "--digest", digest, "--public-key", key[1], "--no-history"],
            ["prove", "xid:12"],
            ["prove", "orders", "1"],
            ["digest", "--sealed", "--key", key[0]],
            ["seal"],
        )
        for line in lines:
            done = run_here([*line, "--lake", attacked.root])
            assert done.code in {0, 6, 7}, (column, value, line, done)
            if line[0] == "digest" and done.code == 0:
                assert re.match("auditlake/1/d/[0-9a-f]{32}\n[0-9]+\n[^\n]{44}\n\n— ", done.stdout), done.stdout


_OTHERS: dict[str, list[object]] = {
    "int64": [None, -1, 0, 1, 7, 2**62, -(2**63)],
    "string": [None, "", "..", "auditlake/1/d/x", "auditlake/1/d/" + "0" * 32 + "\n9\nAAAA"],
    "binary": [None, b"", bytes(32), b"x" * 33],
    "timestamp[us, tz=UTC]": [None, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)],
}


def _with_column(name: str, value: object) -> Rows:
    def changed(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(name)
        field = rows.schema.field(place)
        return rows.set_column(place, field, pa.array([value] * rows.num_rows, field.type))

    return changed
