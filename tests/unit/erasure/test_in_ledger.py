"""Erasure in a sealed lake: no secret of an erased value stays, digests fit, all other rows are compared and proved."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from auditlake.erasure.retention import expire
from auditlake.errors import LakeConflict, NotAnswerable
from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, hold
from auditlake.ledger import verification
from auditlake.ledger.blocks import read_blocks, read_entries
from auditlake.ledger.canonical import canonical_text
from auditlake.ledger.entries import CHANGES, entry_of
from auditlake.ledger.prove import ProofTarget, proofs_of
from auditlake.settings.retention_rules import RetentionPeriods
from tests import oracle
from tests.command import run, run_here
from tests.erasure_lake import NOTES, OF_ONE, OF_TWO, ONE, TWO, found_in, require_sound, write_lake
from tests.expiry import AT_ONCE
from tests.ledger_lake import compared, edit_rows, found, sealed, where
from tests.proof_verifier import verify


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Write the lake."""
    return write_lake(tmp_path / "lake")


def _erase(lake: Lake, *arguments: str) -> None:
    done = run_here(["forget", *arguments, "--lake", lake.root])
    assert done.code == 0, done.stderr


@pytest.mark.parametrize(("arguments", "texts"), [(OF_ONE, ONE), (OF_TWO, TWO)], ids=["columns", "row"])
def test_digests_from_before_and_after_fit(lake: Lake, arguments: tuple[str, ...], texts: tuple[str, ...]) -> None:
    """And nothing is reported; the erasure itself is sealed."""
    before = sealed(lake)
    _erase(lake, *arguments)
    after = sealed(lake)
    proof = compared(lake, before, after)
    assert (found(proof), proof.by) == ([], after.origin)
    assert found_in(lake, texts) == {}
    assert [row["name"] for row in read_entries(lake, "kind = 'erasure'").to_pylist()] == ["public.people"]
    require_sound(lake)


def test_the_key_of_the_block_is_in_no_file(lake: Lake) -> None:
    """With it, a guess of an erased value could be confirmed; the hashes stay."""
    sealed(lake)
    key = read_blocks(lake)[0].key
    assert key is not None
    assert any(key in file.read_bytes() or key.hex() in file.read_text(errors="replace") for file in _files(lake))
    _erase(lake, *OF_ONE)
    assert not any(key in file.read_bytes() or key.hex() in file.read_text(errors="replace") for file in _files(lake))
    assert read_blocks(lake)[0].key is None


def _files(lake: Lake) -> list[Path]:
    return [file for file in lake.root.rglob("*") if file.is_file()]


def test_other_rows_are_compared_as_before(lake: Lake) -> None:
    """A change that has nothing to do with the erasure, a row of the first copy, and a field of an erased change."""
    digest = sealed(lake)
    _erase(lake, *OF_ONE)
    edit_rows(lake.changes, where("lsn", 0x600, lambda _: 5, "xid"))
    edit_rows(lake.changes, where("lsn", 0x200, lambda _: 6, "xid"))
    edit_rows(lake.history(NOTES), where("_from_lsn", 0x100, lambda _: "forged", "text"))
    kinds = {(kind, lsn) for kind, _, lsn, _ in found(compared(lake, digest))}
    assert {("changed change", 0x600), ("changed change", 0x200), ("changed or inserted row", 0x100)} <= kinds


def test_a_secret_that_no_erasure_names_is_missed(lake: Lake) -> None:
    """Else who can write the lake could destroy the secret of any row, and then change it."""
    digest = sealed(lake)
    _erase(lake, *OF_ONE)
    edit_rows(lake.ledger_entries, where("lsn", 0x600, lambda _: None, "secret"))
    assert "destroyed secret" in {kind for kind, *_ in found(compared(lake, digest))}


def test_a_commitment_does_not_stand_for_values_whose_secret_is_there(lake: Lake) -> None:
    """Only for those that were erased; else any other row of their block could be changed."""
    digest = sealed(lake)
    _erase(lake, *OF_ONE)
    (row,) = (each for each in oracle.changes(lake) if (each["lsn"], each["ordinal"]) == (0x600, 0))
    (secret,) = read_entries(lake, "lsn = 1536 and ordinal = 0 and kind = 'change'", ("secret",))["secret"].to_pylist()
    commitment = entry_of(CHANGES, row).commitment(secret)
    edit_rows(lake.ledger_entries, where("secret", secret, lambda _: commitment, "commitment"))
    assert found(compared(lake, digest)) == []
    edit_rows(lake.changes, where("lsn", 0x600, lambda texts: [*texts[:-1], "forged"], "new"))
    assert ("changed change", "public.people", 0x600, 0) in found(compared(lake, digest))


def test_rows_are_proved_after_an_erasure(lake: Lake) -> None:
    """Of another row everything; of the erased one the record without values."""
    sealed(lake)
    _erase(lake, *OF_ONE)
    other = proofs_of(lake, ProofTarget("people", ("3",)), None)
    assert all(entry["secret"] and entry["values"] for entry in _entries(other) if entry["kind"] == "change")
    of_erased = proofs_of(lake, ProofTarget("0/200", ()), None)
    erased = [entry for entry in _entries(of_erased) if entry["kind"] == "change"]
    assert [entry["secret"] for entry in erased] == [None, None]
    assert all(str(entry["record"]).startswith(canonical_text(("auditlake entry 1", "change"))) for entry in erased)
    assert [len(verify(proof, None)) for proof in (other, of_erased)] == [
        len(_entries(other)),
        len(_entries(of_erased)),
    ]


def test_an_erasure_during_a_comparison_is_no_damage(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before it does not fit what was read after it, and files are gone."""
    digest, check = sealed(lake), verification._check_tree  # noqa: SLF001 - a step in the middle

    def check_late(*given: Any) -> Any:
        _erase(lake, *OF_ONE)
        return check(*given)

    monkeypatch.setattr(verification, "_check_tree", check_late)
    with pytest.raises(LakeConflict, match=r"was at work on .* during the comparison"):
        compared(lake, digest)
    monkeypatch.undo()
    assert found(compared(lake, digest)) == []


def test_a_retention_that_ends_during_a_comparison_is_no_damage(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had written its record before, so that only its lock shows it."""
    digest, check = sealed(lake), verification._check_tree  # noqa: SLF001 - a step in the middle
    edit_rows(lake.changes, where("lsn", 0x600, lambda _: "delete", "op"))
    with ExitStack() as retention:
        retention.enter_context(hold(lake, "maintain", Stage.ERASE))

        def check_late(*given: Any) -> Any:
            retention.close()
            return check(*given)

        monkeypatch.setattr(verification, "_check_tree", check_late)
        with pytest.raises(LakeConflict, match="was at work on"):
            compared(lake, digest)
        assert found(compared(lake, digest)) != []


def test_an_erased_entry_without_a_record_is_called_so(lake: Lake) -> None:
    """Not changed: of a row of a copy, and of a change of a row that is gone."""
    sealed(lake)
    _erase(lake, *OF_ONE)
    _erase(lake, *OF_TWO)
    for target in (ProofTarget("people", ("11",)), ProofTarget("0/500", ())):
        with pytest.raises(NotAnswerable, match="was erased, so nothing proves it any more"):
            proofs_of(lake, target, None)


def _entries(proofs: dict[str, object]) -> list[dict[str, object]]:
    entries = proofs["entries"]
    assert isinstance(entries, list)
    return entries


def test_a_second_erasure_in_the_same_block(lake: Lake) -> None:
    """Its block has no key any more; the secret of the other entries stay."""
    digest = sealed(lake)
    _erase(lake, *OF_ONE)
    _erase(lake, *OF_TWO)
    assert found(compared(lake, digest)) == []
    assert found_in(lake, (*ONE, *TWO)) == {}


def test_a_row_whose_changes_have_expired_is_erased(lake: Lake) -> None:
    """It has versions still, from its copy and later; no entry of a change can be found for it."""
    digest = sealed(lake)
    expire(lake, RetentionPeriods(changes=AT_ONCE), "tests", lambda _: None)
    _erase(lake, *OF_TWO)
    assert found(compared(lake, digest, sealed(lake))) == []
    assert found_in(lake, TWO) == {}


@pytest.mark.parametrize("step", [After.ERASURE_BEGUN, f"{After.VALUES_ERASED}:1", After.SECRETS_DESTROYED])
def test_a_kill_while_secrets_are_destroyed_is_finished(lake: Lake, step: str) -> None:
    """After the entries, after the blocks."""
    digest = sealed(lake)
    assert run(["forget", *OF_ONE, "--lake", str(lake.root)], {"AUDITLAKE_FAILPOINT": step}).code == -9
    assert run_here(["forget", "--resume", "--lake", lake.root]).code == 0
    assert found(compared(lake, digest)) == []
    assert found_in(lake, ONE) == {}
    assert json.loads((lake.erasures / "000000.json").read_text())["entries"]
