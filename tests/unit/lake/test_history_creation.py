"""A history lists the table features that it uses, so that a reader which knows those can read it."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from auditlake.lake.history import create_history
from auditlake.lake.layout import Lake
from auditlake.relation import Column, TableName


@pytest.mark.parametrize(("type_oid", "extra"), [(23, set()), (1114, {"timestampNtz"}), (1115, {"timestampNtz"})])
def test_a_history_lists_exactly_the_features_that_it_uses(tmp_path: Path, type_oid: int, extra: set[str]) -> None:
    """Deletion vectors, and timestamps without a zone if there are such columns or arrays of them."""
    create_history(Lake(tmp_path), TableName("public", "t"), (Column("c", type_oid, -1, key=True),))
    table = DeltaTable(Lake(tmp_path).history(TableName("public", "t")))
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert set(protocol.reader_features or ()) == {"deletionVectors"} | extra
    assert set(protocol.writer_features or ()) == {"deletionVectors", "appendOnly", "invariants"} | extra
    metadata = table.metadata()
    assert (metadata.name, metadata.partition_columns) == ("public.t", ["_part"])
    assert metadata.configuration["delta.enableDeletionVectors"] == "true"
