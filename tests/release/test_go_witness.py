"""Digests are signed by the witness of transparency-dev, which checks their consistency proofs."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from auditlake.errors import LakeUnusable
from auditlake.ledger import seal
from auditlake.ledger.digest import last_block, new_key
from auditlake.ledger.signed_note import Checkpoint, PublicKey, SigningKey, open_note
from auditlake.ledger.witness import Witness
from tests.command import run_here
from tests.erasure_lake import append_change, write_lake

_SOURCE = Path(__file__).parent / "go_witness"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the witness; Go fetches the modules through its proxy, and checks them against go.sum."""
    folder = tmp_path_factory.mktemp("go") / "witness"
    shutil.copytree(_SOURCE, folder)
    subprocess.run(["go", "build", "-o", "serve", "."], cwd=folder, check=True, timeout=600)  # noqa: S607 - from PATH
    return folder / "serve"


@pytest.fixture
def log(tmp_path: Path) -> SigningKey:
    """Make the key of the lake."""
    return new_key(tmp_path / "key", "tests")


@pytest.fixture
def witness(program: Path, log: SigningKey) -> Iterator[Witness]:
    """Serve a witness that knows the key."""
    with subprocess.Popen([program, str(log.public)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address, key = process.stdout.readline().split()
        yield Witness.of(f"http://{address}", key)
        process.kill()


def test_each_digest_of_a_growing_lake_is_signed(
    witness: Witness, log: SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one leaf and after many; not one of another tree, of the same size or larger."""
    monkeypatch.setattr(seal, "MOST_TRANSACTIONS", 1)
    settings = {"to": str(tmp_path / "kept"), "witness": witness.url, "witness_key": str(witness.key)}
    monkeypatch.setenv("AUDITLAKE_DIGEST", json.dumps(settings))
    lake = write_lake(tmp_path / "lake")
    command: list[str | Path] = ["digest", "--key", tmp_path / "key", "--lake", lake.root]
    for lsn in (0x700, 0x800, 0x900):
        done = run_here(command)
        assert done.code == 0, done.stderr
        assert open_note(done.stdout, PublicKey.parse(str(witness.key)), "a test").size == last_block(lake).tree.size
        for number in range(lsn // 0x100):
            append_change(lake, lsn + number, {"op": "insert", "relation": 1, "new": [f"{lsn + number}", *[None] * 5]})
    checkpoint = open_note(done.stdout, log.public, "a test")
    for size in (checkpoint.size, checkpoint.size + 1):
        forged = log.sign(Checkpoint(checkpoint.origin, size, bytes(32)))
        with pytest.raises(LakeUnusable, match=f"has signed {checkpoint.size} leaves of .* that are not the first"):
            witness.cosigned(forged, [bytes(32)] * size)
