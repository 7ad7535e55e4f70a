"""Proofs and digests are checked by golang.org/x/mod/sumdb, the code of Go's checksum database."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from auditlake.ledger import seal
from auditlake.ledger.digest import checkpoint_of, last_block
from auditlake.ledger.prove import ProofTarget, proofs_of
from auditlake.ledger.seal import Sealer
from tests.ledger_lake import KEY
from tests.small_lake import write_lake_with_manifest

_SOURCE = Path(__file__).parent / "go_verifier"


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the verifier; Go fetches the module through its proxy, and checks it against go.sum."""
    folder = tmp_path_factory.mktemp("go") / "verifier"
    shutil.copytree(_SOURCE, folder)
    subprocess.run(["go", "build", "-o", "verify", "."], cwd=folder, check=True, timeout=280)  # noqa: S607 - from PATH
    return folder / "verify"


def test_go_verifies_digest_and_path_of_each_page(
    verifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a tree with several leaves; a changed hash, root or signature is refused."""
    monkeypatch.setattr(seal, "MOST_TRANSACTIONS", 1)
    lake = write_lake_with_manifest(tmp_path / "lake")
    Sealer(lake).seal("tests")
    assert last_block(lake).tree.size > 2
    note = KEY.sign(checkpoint_of(last_block(lake)))
    proof = json.dumps(proofs_of(lake, ProofTarget("orders", ("1",)), note))
    assert _run(verifier, proof).returncode == 0
    first = json.loads(proof)["pages"]["0"]["hashes"][0]
    for forged in (proof.replace(first, "00" * 32), proof.replace("\\n4\\n", "\\n5\\n"), proof.replace("/d/", "/e/")):
        assert forged != proof
        assert _run(verifier, forged).returncode != 0


def _run(verifier: Path, proof: str) -> subprocess.CompletedProcess[str]:
    command = [str(verifier), str(KEY.public)]
    return subprocess.run(command, input=proof, text=True, capture_output=True, env=dict(os.environ), check=False)
