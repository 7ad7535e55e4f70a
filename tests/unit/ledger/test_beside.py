"""Sealing beside capture, without capture: what its marks say of seals and digests, and when they stand still."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from auditlake import counters
from auditlake.config import DigestSettings
from auditlake.counters import Mark, read_marks
from auditlake.lake.layout import Lake
from auditlake.ledger import beside, seal
from auditlake.ledger.beside import Sealing
from auditlake.ledger.blocks import has_ledger, read_blocks
from auditlake.ledger.digest import last_block, new_key
from auditlake.ledger.signed_note import PublicKey, open_note
from auditlake.messages import Say
from auditlake.status import as_json, read_status
from tests.small_lake import write_lake_with_manifest
from tests.witness import Witness, serving

_TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with a process that has marked nothing."""
    monkeypatch.setattr(counters, "_marks", {})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Write a lake that was never sealed."""
    return write_lake_with_manifest(tmp_path / "lake")


def _settings(folder: Path) -> DigestSettings:
    new_key(folder / "key", "tests")
    return DigestSettings(to=folder / "digests", key=folder / "key", every_s=3600)


def _level() -> bool:
    """Answer that capture does not lag."""
    return False


def _sealing(
    lake: Lake,
    settings: DigestSettings | None,
    report: Say,
    capture_lags: Callable[[], bool] = _level,
    every_s: float = 30.0,
) -> Sealing:
    return Sealing(lake, settings, "tests", report, every_s, capture_lags)


def test_a_pass_marks_what_is_sealed_and_what_a_digest_names(lake: Lake, tmp_path: Path) -> None:
    """Both move on while the lake is idle, because nothing is left to seal."""
    sealing = _sealing(lake, _settings(tmp_path), lambda _: None)
    begun_s = time.time()
    sealing.once()
    first = read_marks()
    assert first[Mark.SEALED_LSN] == 0x300
    assert begun_s <= first[Mark.SEALED_TIME] == first[Mark.DIGEST_TIME] <= time.time()
    sealing.once()
    assert first[Mark.SEALED_TIME] < read_marks()[Mark.SEALED_TIME] == read_marks()[Mark.DIGEST_TIME]


@pytest.mark.parametrize(("every_s", "marked_s"), [(30.0, 3600.0), (86_400.0, 86_400.0)])
def test_a_digest_is_due_no_earlier_than_a_pass(lake: Lake, tmp_path: Path, every_s: float, marked_s: float) -> None:
    """Else an alert would call each one late that waits for its pass."""
    with beside.sealing(_sealing(lake, _settings(tmp_path), lambda _: None, every_s=every_s)):
        assert read_marks()[Mark.DIGEST_INTERVAL_S] == marked_s


def test_the_mark_of_the_digest_stands_still_while_none_can_be_kept(lake: Lake, tmp_path: Path) -> None:
    """That of the seal goes on, and the cause is reported once."""
    settings = _settings(tmp_path)
    Path(str(settings.to)).write_text("a file where the folder should be")
    reports: list[str] = []
    sealing = _sealing(lake, settings, reports.append)
    sealing.once()
    sealing.once()
    assert Mark.SEALED_TIME in read_marks()
    assert Mark.DIGEST_TIME not in read_marks()
    assert len(reports) == 1


def test_a_digest_is_kept_once_the_witness_signs_it(lake: Lake, tmp_path: Path) -> None:
    """Each pass asks again, nothing is kept meanwhile, and the cause is reported once."""
    key, reports = new_key(tmp_path / "key", "tests"), list[str]()
    with serving(Witness(str(key.public))) as witness:
        settings = DigestSettings(
            to=tmp_path / "digests", key=tmp_path / "key", witness=witness.url, witness_key=witness.public_key
        )
        sealing = _sealing(lake, settings, reports.append)
        witness.answer = 503, "text/plain", b""
        sealing.once()
        sealing.once()
        assert len(witness.asked) == 2
        assert Mark.DIGEST_TIME not in read_marks()
        assert not [*tmp_path.rglob("*.digest")]
        witness.answer = None
        sealing.once()
    (kept,) = tmp_path.rglob("*.digest")
    assert open_note(kept.read_text(), PublicKey.parse(witness.public_key), "a test").size == last_block(lake).tree.size
    assert Mark.DIGEST_TIME in read_marks()
    failed, done = reports
    assert failed.startswith(
        f"no digest is kept, trying again while capture goes on: the witness {witness.url} answers 503"
    )
    assert done == f"digest kept in {kept}"


def test_a_witness_that_does_not_answer_holds_up_no_end(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up at once, and soon after it was asked for the last digest; that is reported."""
    monkeypatch.setattr(beside, "_LAST_S", 0.1)
    monkeypatch.setattr("auditlake.ledger.witness._ANSWER_S", 10 * _TIMEOUT_S)
    key, reports, asked = new_key(tmp_path / "key", "tests"), list[str](), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        url, public = f"http://127.0.0.1:{server.getsockname()[1]}", Witness(str(key.public)).public_key
        settings = DigestSettings(to=tmp_path / "digests", key=tmp_path / "key", witness=url, witness_key=public)
        given_up = pool.submit(_await_ends, server, asked)
        with beside.sealing(_sealing(lake, settings, reports.append, every_s=0.01)):
            assert asked.wait(_TIMEOUT_S)
        given_up.result()
    assert [f"no digest is kept: the witness {url} cannot be asked: no answer in time" in each for each in reports] == [
        True
    ]


def test_what_a_stopped_pass_left_is_sealed_at_the_end(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although nothing was captured since: a pass ends after the block that it is at."""
    monkeypatch.setattr(seal, "MOST_TRANSACTIONS", 1)
    sealing = _sealing(lake, None, lambda _: None)
    sealing.stop.set()
    sealing.once()
    assert last_block(lake).upto.commit < 0x300
    sealing.finish()
    assert last_block(lake).upto.commit == 0x300


def test_a_pass_gives_way_to_a_capture_that_lags(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins no block meanwhile, ends after the one that it is at, and marks nothing before it has sealed all."""
    monkeypatch.setattr(seal, "MOST_TRANSACTIONS", 1)
    monkeypatch.setattr(beside, "_GIVING_WAY_S", 0.001)
    answers, seen = [True, True, False, True, True, False], list[tuple[int, bool]]()

    def capture_lags() -> bool:
        seen.append((len(read_blocks(lake)), Mark.SEALED_TIME in read_marks()))
        return len(seen) <= len(answers) and answers[len(seen) - 1]

    _sealing(lake, None, lambda _: None, capture_lags).once()
    assert seen[: len(answers)] == [(0, False)] * 3 + [(1, False)] * 3
    assert last_block(lake).upto.commit == read_marks()[Mark.SEALED_LSN] == 0x300


def test_a_pass_that_is_stopped_while_it_gives_way_seals_nothing(lake: Lake) -> None:
    """It does not keep a run waiting that ends with an error."""
    sealing = _sealing(lake, None, lambda _: None, lambda: True)
    sealing.stop.set()
    sealing.once()
    assert not has_ledger(lake)


def test_a_source_that_capture_never_catches_up_with_is_sealed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that is late is made as a whole."""
    monkeypatch.setattr(seal, "MOST_TRANSACTIONS", 1)
    monkeypatch.setattr(beside, "_LATE_S", -30.0)
    _sealing(lake, None, lambda _: None, lambda: True).once()
    assert last_block(lake).upto.commit == read_marks()[Mark.SEALED_LSN] == 0x300


def test_an_interval_of_0_seals_nothing_beside_capture(lake: Lake, tmp_path: Path) -> None:
    """Also at the end; a digest is left to the command, and none is missed."""
    with beside.sealing(_sealing(lake, _settings(tmp_path), lambda _: None, every_s=0.0)):
        assert read_marks() == {}
    assert not has_ledger(lake)


def _await_ends(server: socket.socket, asked: threading.Event) -> None:
    """Answer nothing, and wait until the client ends each of two connections."""
    server.settimeout(_TIMEOUT_S)
    for _ in range(2):
        connection, _ = server.accept()
        asked.set()
        with connection:
            connection.settimeout(_TIMEOUT_S)
            while connection.recv(1 << 16):
                pass


def test_status_shows_up_to_where_the_ledger_is_sealed(lake: Lake) -> None:
    """Unknown without a ledger."""
    assert as_json(read_status(lake, None))["sealed"] is None
    _sealing(lake, None, lambda _: None).once()
    assert as_json(read_status(lake, None))["sealed"] == "0/300"
