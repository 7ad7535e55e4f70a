"""Append the changes that wait in a slot to Delta tables, with dlt's pg_replication.

dlt_replication.py URL FOLDER SOURCES SLOT PUBLICATION
"""

import sys
from pathlib import Path

import dlt
from dlt.destinations import filesystem

_BATCH = 100_000


def main() -> None:
    """Append every change to Delta tables, as the source's own documentation does for destinations without merge."""
    url, folder, sources, slot, publication = sys.argv[1:]
    sys.path.insert(0, sources)
    from sources.pg_replication import replication_resource  # noqa: PLC0415 - fetched at run time

    changes = replication_resource(slot, publication, credentials=url, target_batch_size=_BATCH)
    pipeline = dlt.pipeline(
        "applied",
        pipelines_dir=f"{folder}/.pipeline",
        destination=filesystem(Path(folder).as_uri()),
        dataset_name="data",
    )
    pipeline.run(changes, table_format="delta")


if __name__ == "__main__":
    main()
