"""Digests that a witness signs, too: it was written from the specification, and checks that the tree only grew."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.config import load_settings
from auditlake.errors import ConfigError
from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.ledger import seal
from auditlake.ledger.blocks import has_ledger
from auditlake.ledger.digest import keep_note, last_block, new_key
from auditlake.ledger.merkle import consistency_path, leaf_hash, root_of
from auditlake.ledger.seal import Sealer
from auditlake.ledger.signed_note import Checkpoint, PublicKey, open_note
from tests.command import Done, run, run_here
from tests.erasure_lake import append_change, write_lake
from tests.witness import Witness, is_consistent, serving

_LATE = "no answer in time"


@given(st.data())
def test_a_consistency_proof_convinces_only_of_the_tree_that_it_is_of(data: st.DataObject) -> None:
    """As RFC 9162, section 2.1.4.2, verifies it; not with another root, or another size."""
    size = data.draw(st.integers(1, 40))
    old = data.draw(st.integers(1, size))
    leaves = [leaf_hash(bytes([each])) for each in range(size)]
    proof, roots = consistency_path(leaves, old), (root_of(leaves[:old]), root_of(leaves))
    assert is_consistent(old, size, roots, proof)
    assert not is_consistent(old, size, (root_of([*leaves[: old - 1], bytes(32)]), roots[1]), proof)
    if old < size:
        assert not is_consistent(old, size, (roots[0], root_of([*leaves[:-1], bytes(32)])), proof)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Write a lake with a leaf for each transaction."""
    monkeypatch.setattr(seal, "MOST_TRANSACTIONS", 1)
    return write_lake(tmp_path / "lake")


@pytest.fixture
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Witness]:
    """Serve a witness that knows the key of the settings."""
    log = new_key(tmp_path / "key", "tests").public
    with serving(Witness(str(log))) as found:
        _set(monkeypatch, tmp_path, found.url, found.public_key)
        yield found


def _set(monkeypatch: pytest.MonkeyPatch, folder: Path, url: str, key: str) -> None:
    settings = {"to": str(folder / "kept"), "key": str(folder / "key"), "witness": url, "witness_key": key}
    monkeypatch.setenv("AUDITLAKE_DIGEST", json.dumps(settings))


def _digest(lake: Lake, *options: str) -> Done:
    return run_here(["digest", *options, "--lake", lake.root])


def _grow(lake: Lake) -> None:
    append_change(lake, 0x700, {"op": "insert", "relation": 1, "new": ["7", *[None] * 5]})


def test_a_witness_signs_a_tree_and_what_it_grows_to(lake: Lake, witness: Witness, tmp_path: Path) -> None:
    """Each digest is kept with its signature, and the witness's key alone verifies it."""
    first = _digest(lake)
    assert first.code == 0, first.stderr
    _grow(lake)
    second = _digest(lake)
    again = _digest(lake, "--sealed")
    key = PublicKey.parse(witness.public_key)
    sizes = [open_note(done.stdout, key, "a test").size for done in (first, second, again)]
    assert sizes[0] < sizes[1] == sizes[2] == witness.trees[open_note(second.stdout, key, "a test").origin][0]
    assert [each.read_text() for each in sorted((tmp_path / "kept").rglob("*.digest"))] == [first.stdout, second.stdout]
    kept = next((tmp_path / "kept").rglob("*.digest"))
    public = ["--public-key", witness.public_key]
    assert run_here(["verify", "--digest", kept, *public, "--no-history", "--lake", lake.root]).code == 0


@pytest.mark.crash
@pytest.mark.parametrize("place", [After.DIGEST_COSIGNED, After.DIGEST_STORED])
def test_a_killed_command_keeps_the_same_digest_when_it_is_repeated(
    lake: Lake, witness: Witness, tmp_path: Path, place: After
) -> None:
    """The witness remembers a tree that is kept nowhere, and signs it once more; the tree grows from there."""
    environment = {"AUDITLAKE_FAILPOINT": place, "AUDITLAKE_DIGEST": os.environ["AUDITLAKE_DIGEST"]}
    assert run(["digest", "--lake", lake.root], environment).code == -9
    kept = [*(tmp_path / "kept").rglob("*.digest")]
    assert len(kept) == int(place is After.DIGEST_STORED)
    again = _digest(lake)
    assert (again.code, len(witness.asked)) == (0, 3), again.stderr
    (digest,) = (tmp_path / "kept").rglob("*.digest")
    size = open_note(digest.read_text(), PublicKey.parse(witness.public_key), "a test").size
    assert size == last_block(lake).tree.size == witness.trees[last_block(lake).origin][0]
    _grow(lake)
    assert _digest(lake).code == 0


def test_a_witness_does_not_sign_a_ledger_that_was_made_again(lake: Lake, witness: Witness, tmp_path: Path) -> None:
    """Even by who has the key that signs digests; nothing is kept."""
    assert _digest(lake).code == 0
    before = last_block(lake)
    shutil.rmtree(lake.ledger)
    Sealer(lake).seal("tests")
    origin = last_block(lake).origin
    witness.trees[origin] = before.tree.size, before.tree.root
    refused = _digest(lake)
    message = f"has signed {before.tree.size} leaves of {origin} that are not the first"
    assert (refused.code, message in refused.stderr) == (6, True), refused.stderr
    assert len(list((tmp_path / "kept").rglob("*.digest"))) == 1


def test_a_lake_that_was_set_back_is_named(lake: Lake, witness: Witness) -> None:
    """The witness has signed more leaves than the lake has."""
    assert _digest(lake).code == 0
    origin, size = last_block(lake).origin, last_block(lake).tree.size
    witness.trees[origin] = size + 3, bytes(32)
    refused = _digest(lake)
    message = f"has signed {size + 3} leaves of {origin}, this lake has {size}"
    assert (refused.code, message in refused.stderr) == (6, True), refused.stderr


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((404, "text/plain", b""), "does not know auditlake/"),
        ((403, "text/plain", b""), "does not know the key that signs auditlake/"),
        ((409, "text/x.tlog.size", b"0\n"), "answers 409, need 200"),
        ((409, "text/x.tlog.size", b"-1\n"), "answers 409, need 200"),
        ((409, "text/x.tlog.size", b"9" * 5000), "answers 409, need 200"),
        ((409, "text/plain", b"1\n"), "answers 409, need 200"),
        ((302, "text/plain", b""), "answers 302, need 200"),
        ((503, "text/html", b"<h1>\xff</h1>"), "answers 503, need 200"),
        ((200, "text/plain", b""), "without a valid signature of witness.example/w1"),
        ((200, "text/plain", "— witness.example/w1 AAAA\n".encode()), "without a valid signature of"),
        ((200, "text/plain", "— witness.example/w1 \x00\n".encode() * 100_000), "without a valid signature of"),
    ],
)
def test_a_refusal_is_named_and_nothing_is_kept(
    lake: Lake, witness: Witness, tmp_path: Path, answer: tuple[int, str, bytes], message: str
) -> None:
    """Whatever it answers."""
    witness.answer = answer
    done = _digest(lake)
    assert (done.code, done.stdout, message in done.stderr) == (6, "", True), done.stderr
    assert not list((tmp_path / "kept").rglob("*.digest"))


def test_a_signature_of_another_checkpoint_is_refused(lake: Lake, witness: Witness) -> None:
    """And one of another key of the same name."""
    witness.answer = 200, "text/plain", witness.cosignature("auditlake/other\n1\nAAAA\n").encode()
    assert "without a valid signature" in _digest(lake).stderr
    note = witness.asked[-1].decode().partition("\n\n")[2]
    text = note.partition("\n\n")[0] + "\n"
    witness.answer = 200, "text/plain", Witness(witness.log).cosignature(text).encode()
    assert "without a valid signature" in _digest(lake).stderr
    witness.answer = 200, "text/plain", f"— other AAAA\n{witness.cosignature(text)}".encode()
    assert _digest(lake).stdout == note + witness.cosignature(text)


def test_a_key_that_the_witness_does_not_know(lake: Lake, witness: Witness, tmp_path: Path) -> None:
    """The witness verifies the digest's signature first."""
    other = new_key(tmp_path / "other", "tests")
    assert str(other.public) != witness.log
    done = _digest(lake, "--key", str(tmp_path / "other"))
    assert (done.code, "does not know the key" in done.stderr) == (6, True), done.stderr


def test_a_witness_that_does_not_answer_is_named(
    lake: Lake, witness: Witness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens on its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    _set(monkeypatch, tmp_path, url, witness.public_key)
    done = _digest(lake)
    assert (done.code, f"the witness {url} cannot be asked: " in done.stderr) == (6, True), done.stderr


@pytest.mark.parametrize(
    ("answered", "reason"),
    [
        (b"", "Remote end closed connection without response"),
        (b"", _LATE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", _LATE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhidden", "IncompleteRead"),
        (b"HTTP/1.1 409 Conflict\r\nContent-Type: text/x.tlog.size\r\nContent-Length: 3\r\n\r\n1", "IncompleteRead"),
        (b"hidden words\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhidden words\r\n", "IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n", "ValueError"),
    ],
)
def test_an_answer_that_is_not_one_is_named(
    lake: Lake, witness: Witness, monkeypatch: pytest.MonkeyPatch, answered: bytes, reason: str
) -> None:
    """Without what was answered, in bounded time."""
    monkeypatch.setattr("auditlake.ledger.witness._ANSWER_S", 0.5)
    monkeypatch.setattr("auditlake.exchange._TAIL_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        _set(monkeypatch, lake.root.parent, f"http://127.0.0.1:{server.getsockname()[1]}", witness.public_key)
        answering = pool.submit(_answer, server, answered, ends=reason != _LATE)
        done = _digest(lake)
        answering.result()
    assert (done.code, f"cannot be asked: {reason}" in done.stderr) == (6, True), done.stderr
    assert "hidden" not in done.stderr


def _answer(server: socket.socket, answered: bytes, *, ends: bool) -> None:
    """Answer one request; then close the connection, or wait until the client does."""
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as asked:
        head = [*iter(asked.readline, b"\r\n")]
        asked.read(next(int(line.split()[1]) for line in head if line.lower().startswith(b"content-length:")))
        connection.sendall(answered)
        if not ends:
            asked.read()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"to": "https://witness.example/w"}, "a witness, which keeps no digests, is set as `witness`"),
        ({"to": "kept", "witness": "https://witness.example"}, "need each other"),
        ({"to": "kept", "witness": "https://me:hunter2@w.example", "witness_key": "x"}, "without credentials"),
        ({"to": "kept", "witness": "https://me:hunter2@exa℀mple.org", "witness_key": "x"}, "without credentials"),
        ({"to": "kept", "witness": "witness.example", "witness_key": "x"}, "write https://host/path"),
        ({"to": "kept", "witness": "https://w.example/a b", "witness_key": "x"}, "write https://host/path"),
        ({"to": "kept", "witness": "https://w.example:99999/w", "witness_key": "x"}, "write https://host/path"),
        ({"to": "kept", "witness": "https://w..example/w", "witness_key": "x"}, "write https://host/path"),
    ],
)
def test_settings_that_name_no_witness_are_refused(settings: dict[str, str], message: str) -> None:
    """Before anything is sent; no credentials are repeated."""
    with pytest.raises(ConfigError) as caught:
        load_settings(digest=settings)
    assert message in caught.value.message
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "is the key of a log, need the one of a witness"),
        ("w1", "the key of the witness is wrong: the public key is not of the form name+id+key"),
    ],
)
def test_a_key_that_is_not_of_a_witness_is_refused(
    lake: Lake, witness: Witness, monkeypatch: pytest.MonkeyPatch, key: str | None, message: str
) -> None:
    """Before anything is sealed; that of a log would verify nothing that a witness signs."""
    _set(monkeypatch, lake.root.parent, witness.url, key or witness.log)
    done = _digest(lake)
    assert (done.code, message in done.stderr) == (3, True), done.stderr
    assert "show-key" not in done.stderr
    assert not has_ledger(lake)
    assert witness.asked == []


def test_a_digest_is_new_only_once(tmp_path: Path) -> None:
    """The first one of a tree stays."""
    checkpoint = Checkpoint("auditlake/tests", 1, bytes(32))
    assert [keep_note(tmp_path / "k", checkpoint, "x").is_new for _ in range(2)] == [True, False]
