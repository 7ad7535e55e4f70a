"""Files of a lake on a disk."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from socket import AF_UNIX, socket

import pytest

from auditlake.store import files
from auditlake.store.failures import NotAFile, as_lake_error


def test_a_folder_written_just_now_equals_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second write within a tick of the clock gives it the same time."""
    assert files.fingerprint(tmp_path) != files.fingerprint(tmp_path)
    monkeypatch.setattr(files, "_SETTLED_NS", 0)
    assert files.fingerprint(tmp_path) == files.fingerprint(tmp_path)


@pytest.mark.parametrize(("one", "other"), [("orders", "customers"), ("orders.json", "orders.state")])
def test_files_that_are_replaced_at_the_same_time_keep_their_own_content(tmp_path: Path, one: str, other: str) -> None:
    """Two webhooks with their state in one folder; a name need not have an extension."""

    def replace_other() -> None:
        files.replace_file(tmp_path / other, other, durable=True)

    files.replace_file(tmp_path / one, one, durable=True, before_rename=replace_other)
    assert {place.name: place.read_text() for place in tmp_path.iterdir()} == {one: one, other: other}


def test_writers_of_one_file_replace_it_one_after_the_other(tmp_path: Path) -> None:
    """A resync and capture both write what they last saw of a table's catalog entry."""
    place = tmp_path / "orders.json"
    files.replace_file(
        place, "first", durable=False, before_rename=lambda: files.replace_file(place, "second", durable=False)
    )
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"orders.json": "first"}


def test_a_file_that_cannot_be_replaced_leaves_no_other(tmp_path: Path) -> None:
    """The name is that of a folder."""
    place = tmp_path / "orders.json"
    (place / "below").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        files.replace_file(place, "first", durable=True)
    assert [each.name for each in tmp_path.iterdir()] == ["orders.json"]


def _pipe(place: Path) -> None:
    os.mkfifo(place)


def _socket(place: Path) -> None:
    with socket(AF_UNIX) as listening:
        listening.bind(os.path.relpath(place))  # a path has 107 bytes at most


def _device(place: Path) -> None:
    place.symlink_to("/dev/zero")


_READS: Mapping[str, Callable[[Path], object]] = {
    "read": files.read_file,
    "read with its version": files.read_versioned,
    "sum": files.crc32,
    "read a listed file": partial(files.read_listed, etag=None),
    "read Parquet": files.parquet,
    "read a listed Parquet file": partial(files.parquet_listed, etag=None),
    "update": lambda place: files.update_file(place, lambda _: "new"),
    "copy": lambda place: files.copy_file(place, place.with_name("copy")),
    "create": lambda place: files.put_if_absent(place, b"new"),
    "let others read": lambda place: files.require_files([place]),
}


@pytest.mark.parametrize("plant", [_pipe, _socket, _device])
@pytest.mark.parametrize("read", _READS)
def test_what_is_no_file_is_refused_without_waiting(read: str, plant: Callable[[Path], None], tmp_path: Path) -> None:
    """A pipe without a writer has no content, and a device no end."""
    plant(tmp_path / "lake.json")
    with pytest.raises(NotAFile) as caught:
        _READS[read](tmp_path / "lake.json")
    error = as_lake_error(caught.value)
    assert error is not None
    assert (error.message, error.exit_code) == (f"{tmp_path / 'lake.json'} is not a file", 6)
    assert [place.name for place in tmp_path.iterdir()] == ["lake.json"]


def test_a_file_is_read_through_a_link_and_a_missing_one_is_missing(tmp_path: Path) -> None:
    """As a user may link a file of a lake to another disk."""
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert files.read_file(tmp_path / "link") == b"content"
    files.require_files([tmp_path / "link", tmp_path / "none", tmp_path / "file" / "below"])
    with pytest.raises(FileNotFoundError):
        files.read_file(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        files.read_file(tmp_path)
