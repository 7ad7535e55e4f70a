"""Lakes of every format: an earlier one is read, applied to and maintained; a later one refused and left as it is."""

import json
import tarfile
from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
from pathlib import Path

import pytest

import auditlake
from auditlake.errors import LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import FORMAT_VERSION, read_created_for, read_earlier_sources, read_manifest
from tests import command
from tests.small_lake import write_lake_with_manifest

_LAKES = Path(__file__).parents[2] / "data" / "lakes"
_ORDERS = [  # id, status, total (NaN has only a text), note, how it began and ended
    (1, "new", Decimal("10.00"), None, "insert", "update"),
    (2, "new", Decimal("20.50"), None, "insert", "update"),
    (3, "new", None, None, "insert", "delete"),
    (1, "paid", Decimal("10.00"), None, "update", None),
    (20, "new", Decimal("20.50"), None, "update", None),
    (4, "new", Decimal("40.00"), "late", "insert", None),
]
_NOTES = [("a", "insert", "truncate"), ("a", "insert", "truncate"), ("b", "insert", "truncate")]


def _unpacked(folder: Path, number: int) -> Path:
    with tarfile.open(_LAKES / f"format-{number}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "lake"


def _orders(lake: Path) -> list[tuple[object, ...]]:
    rows = auditlake.Lake(lake).sql(
        "select id, status, total, note, _op, _end_op from orders for system_time all order by _from_lsn, id",
        dialect="spark",  # PostgreSQL's refuses a value that only its text holds
    )
    return [*rows]


def test_every_format_has_a_lake() -> None:
    """The checklist of a release records one if the format has changed."""
    assert {path.name for path in _LAKES.glob("*.xz")} == {f"format-{n}.tar.xz" for n in range(1, FORMAT_VERSION + 1)}


@pytest.mark.parametrize("number", range(1, FORMAT_VERSION + 1))
def test_a_lake_of_an_earlier_format_goes_on(number: int, tmp_path: Path) -> None:
    """Two of its transactions are in no history yet: the same answers before they are applied and after maintenance."""
    lake = _unpacked(tmp_path, number)
    assert _orders(lake) == _ORDERS
    for line in (["apply", "--until-current"], ["maintain"], ["seal"]):
        done = command.run_here([*line, "--lake", lake])
        assert done.code == 0, done.stderr
    assert _orders(lake) == _ORDERS
    notes = auditlake.Lake(lake).sql("select body, _op, _end_op from notes for system_time all order by body")
    assert [*notes] == _NOTES


@pytest.mark.parametrize(
    "line",
    [["log"], ["sql", "select 1 from orders"], ["apply", "--until-current"], ["capture", "--source", "host=127.0.0.1"]],
    ids=lambda line: line[0],
)
def test_a_lake_of_a_later_format_is_refused(line: list[str], tmp_path: Path) -> None:
    """By name and number, and not one file changes."""
    lake = _unpacked(tmp_path, FORMAT_VERSION)
    manifest = lake / "lake.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format_version": 99}))
    before = _digests(lake)
    done = command.run_here([*line, "--lake", lake])
    assert (done.code, "has format version 99" in done.stderr) == (6, True), done.stderr
    assert _digests(lake) == before


def _digests(lake: Path) -> dict[Path, str]:
    return {path: sha256(path.read_bytes()).hexdigest() for path in lake.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "changed", [{"format_version": []}, {"database": 7}, {"slot": ["s"]}, {"timeline": "1"}, {"lsn_offset": None}]
)
def test_a_manifest_with_other_types_is_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    """A restored disk may have any file."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    content = json.loads(lake.manifest.read_text()) | changed
    lake.manifest.write_text(json.dumps(content))
    with pytest.raises(LakeUnusable, match=next(iter(changed)).replace("_", ".")):
        read_manifest(lake)


@pytest.mark.parametrize(
    ("changed", "read"),
    [
        ({"earlier_sources": [7]}, read_earlier_sources),
        ({"publication_created": True, "publication_tables": 7}, read_created_for),
    ],
)
def test_more_of_a_manifest_with_other_types_is_refused(
    tmp_path: Path, changed: dict[str, object], read: Callable[[Lake], object]
) -> None:
    """What only some commands read."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    lake.manifest.write_text(json.dumps(json.loads(lake.manifest.read_text()) | changed))
    with pytest.raises(LakeUnusable, match=r"lake\.json cannot be read: TypeError"):
        read(lake)
