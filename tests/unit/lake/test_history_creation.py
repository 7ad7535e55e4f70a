"""A history lists the table features that it uses, so that a reader which knows those can read it."""

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from auditlake.lake.history import create_history, open_history
from auditlake.lake.layout import Lake
from auditlake.relation import Column, TableName
from tests.command import run_here
from tests.small_lake import ORDERS, write_lake_with_manifest


@pytest.mark.parametrize(("type_oid", "extra"), [(23, set()), (1114, {"timestampNtz"}), (1115, {"timestampNtz"})])
def test_a_history_lists_exactly_the_features_that_it_uses(tmp_path: Path, type_oid: int, extra: set[str]) -> None:
    """Deletion vectors, and timestamps without a zone if there are such columns or arrays of them."""
    create_history(Lake(tmp_path), TableName("public", "t"), (Column("c", type_oid, -1, key=True),), 1)
    table = DeltaTable(Lake(tmp_path).history(TableName("public", "t")))
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert set(protocol.reader_features or ()) == {"deletionVectors"} | extra
    assert set(protocol.writer_features or ()) == {"deletionVectors", "appendOnly", "invariants"} | extra
    metadata = table.metadata()
    assert (metadata.name, metadata.partition_columns) == ("public.t", ["_part"])
    assert metadata.configuration["delta.enableDeletionVectors"] == "true"


def test_a_history_deleted_before_its_positions_were_read_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture opens histories while a bootstrap that starts again deletes what a killed copy left."""
    lake, name = Lake(tmp_path), TableName("public", "t")
    create_history(lake, name, (Column("c", 23, -1, key=True),), 1)

    def open_before(path: Path) -> DeltaTable:
        table = DeltaTable(path)
        shutil.rmtree(path)
        return table

    monkeypatch.setattr("auditlake.delta.append_table.open_table", open_before)
    assert open_history(lake, name) is None


def test_a_history_with_a_column_of_another_program_is_no_bug(tmp_path: Path) -> None:
    """No column of the source is known to be it."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    DeltaTable(lake.history(ORDERS)).alter.add_columns([Field("more", PrimitiveType("string"))])
    done = run_here(["status", "--lake", lake.root])
    assert (done.code, "does not tell which column of the source more is" in done.stderr) == (6, True), done.stderr


@pytest.mark.parametrize(("name", "value"), [("oid", "one"), ("names", "[7]"), ("former_oids", "[")])
def test_a_history_of_an_unknown_table_is_no_bug(tmp_path: Path, name: str, value: str) -> None:
    """Another program may have changed what tells it."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    DeltaTable(lake.history(ORDERS)).alter.set_table_properties({f"auditlake.{name}": value}, raise_if_not_exists=False)
    done = run_here(["status", "--lake", lake.root])
    assert (done.code, "does not tell which table it is the history of" in done.stderr) == (6, True), done.stderr
