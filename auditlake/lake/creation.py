"""The first commit of a Delta table, with the table features that it uses and no other.

deltalake lists `variantType` for every table with deletion vectors, and a reader must refuse a table with a feature
that it does not know. So the commit is written here.

Authority: Delta's PROTOCOL.md, "Delta Log Entries", "Table Features"
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deltalake import Schema

from auditlake.lake.commits import Action, put_commit

_READER_VERSION, _WRITER_VERSION = 3, 7
_DELETION_VECTORS = "deletionVectors"
# What a writer of version 2 keeps to; table features name it.
_OLD_WRITER_FEATURES = ("appendOnly", "invariants")


@dataclass(frozen=True, slots=True)
class Creation:
    """What a table is created with; it has deletion vectors."""

    name: str
    schema: Schema
    partition_by: tuple[str, ...]
    configuration: Mapping[str, str]


def create_table(path: Path, creation: Creation) -> None:
    """Write the commit that creates the table; there must be none."""
    (path / "_delta_log").mkdir(parents=True, exist_ok=True)
    put_commit(path, 0, "CREATE TABLE", _actions(creation))


def _actions(creation: Creation) -> list[Action]:
    now_ms = int(time.time() * 1000)
    schema = creation.schema.to_json()
    features = [_DELETION_VECTORS, *(["timestampNtz"] if '"timestamp_ntz"' in schema else [])]
    protocol = {
        "minReaderVersion": _READER_VERSION,
        "minWriterVersion": _WRITER_VERSION,
        "readerFeatures": features,
        "writerFeatures": [*_OLD_WRITER_FEATURES, *features],
    }
    metadata = {
        "id": str(uuid.uuid4()),
        "name": creation.name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": list(creation.partition_by),
        "configuration": dict(creation.configuration),
        "createdTime": now_ms,
    }
    return [
        {"protocol": protocol},
        {"metaData": metadata},
    ]
