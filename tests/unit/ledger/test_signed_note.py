"""Digests as signed notes: the test vector of the format, and what is refused."""

import base64

import pytest

from auditlake.errors import AuditlakeError, BadUsage
from auditlake.ledger.signed_note import Checkpoint, PublicKey, SigningKey, open_note, read_checkpoint

KEY = SigningKey.generate("tests")
CHECKPOINT = Checkpoint("auditlake/1/d/x", 7, bytes(range(32)))
# golang.org/x/mod/sumdb/note, ExampleSign
_GO_KEY = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
_GO_PUBLIC = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"


def test_a_key_of_go_gives_the_public_key_of_go() -> None:
    """Keys have the form of golang.org/x/mod/sumdb/note."""
    key = SigningKey.parse(_GO_KEY, "a test")
    assert (str(key.public), key.encoded()) == (_GO_PUBLIC, _GO_KEY)
    assert PublicKey.parse(_GO_PUBLIC) == key.public


def test_a_digest_is_read_as_it_was_signed() -> None:
    """Other signatures, such as those of witnesses, do not matter."""
    note = KEY.sign(CHECKPOINT)
    assert open_note(note, KEY.public, "a test") == CHECKPOINT
    assert open_note(f"{note}— witness {base64.b64encode(bytes(76)).decode()}\n", KEY.public, "a test") == CHECKPOINT
    assert note.startswith("auditlake/1/d/x\n7\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n\n— tests ")


def _forged(note: str) -> dict[str, str]:
    text, _, signature = note.partition("\n\n")
    name, encoded = signature.strip().rsplit(" ", 1)
    flipped = bytearray(base64.b64decode(encoded))
    flipped[40] ^= 1
    return {
        "another size": note.replace("\n7\n", "\n8\n"),
        "another origin": note.replace("/d/", "/e/"),
        "another signature": f"{text}\n\n{name} {base64.b64encode(flipped).decode()}\n",
        "no signature": f"{text}\n\n",
        "no empty line": note.replace("\n\n", "\n"),
        "a fourth line": f"{text}\nmore\n\n{signature}",
        "a size with a zero before it": note.replace("\n7\n", "\n07\n"),
        "a size of 64 bits": note.replace("\n7\n", f"\n{1 << 63}\n"),
        "a size with more digits than int reads": note.replace("\n7\n", f"\n{'9' * 5000}\n"),
        "a short root": note.replace("HB0eHw==\n", "HB0e\n").replace("Hh8=\n", "\n"),
        "nothing": "",
        "an empty origin": note.replace("auditlake/1/d/x", ""),
    }


@pytest.mark.parametrize("size", [1 << 63, int("9" * 4000)])
def test_a_size_that_no_tree_has_is_none_of_a_digest(size: int) -> None:
    """Read without a signature, as `prove` does."""
    note = KEY.sign(CHECKPOINT)
    assert read_checkpoint(note) == CHECKPOINT
    assert read_checkpoint(note.replace("\n7\n", f"\n{size}\n")) is None
    assert read_checkpoint(note.replace("\n7\n", f"\n{(1 << 63) - 1}\n")) is not None


@pytest.mark.parametrize("forgery", _forged(KEY.sign(CHECKPOINT)))
def test_a_forged_digest_is_refused(forgery: str) -> None:
    """Either it is not a digest, or the key did not sign it."""
    with pytest.raises(BadUsage, match=r"not a digest|not signed by"):
        open_note(_forged(KEY.sign(CHECKPOINT))[forgery], KEY.public, "a test")


def test_a_digest_of_another_key_is_refused() -> None:
    """The other key has the same name."""
    with pytest.raises(BadUsage, match="not signed by tests"):
        open_note(SigningKey.generate("tests").sign(CHECKPOINT), KEY.public, "a test")


@pytest.mark.parametrize("text", ["", "x", "a+b+c", _GO_KEY, _GO_PUBLIC.replace("c74f", "c74e"), f"{_GO_PUBLIC}AA"])
def test_what_is_not_a_public_key_is_refused(text: str) -> None:
    """A mistyped key is noticed by its ID."""
    with pytest.raises(BadUsage, match="public key"):
        PublicKey.parse(text)


@pytest.mark.parametrize("text", ["", "secret", _GO_PUBLIC, _GO_KEY[:-4], _GO_KEY.replace("c74f", "c74e")])
def test_what_is_not_a_key_is_refused_without_being_shown(text: str) -> None:
    """The text may be a secret of another kind."""
    with pytest.raises(AuditlakeError) as caught:
        SigningKey.parse(text, "KEY FILE")
    assert "KEY FILE" in caught.value.message
    assert not text or text not in f"{caught.value.message} {caught.value.hint}"


def test_a_key_does_not_show_itself() -> None:
    """Not even in a traceback with its arguments."""
    assert KEY.encoded() not in repr(KEY)
    assert KEY.seed.hex() not in repr(KEY)


@pytest.mark.parametrize("name", ["", "two words", "a+b"])
def test_a_key_cannot_have_a_name_that_a_note_cannot_have(name: str) -> None:
    """A name ends at a space or a plus."""
    with pytest.raises(BadUsage, match="cannot be named"):
        SigningKey.generate(name)
