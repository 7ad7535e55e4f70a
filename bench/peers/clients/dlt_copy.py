"""Copy tables with dlt's sql_database into Delta tables: dlt_copy.py URL FOLDER TABLE..."""

import sys
from pathlib import Path

import dlt
from dlt.destinations import filesystem
from dlt.sources.sql_database import sql_database


def main() -> None:
    """Copy all tables with the fastest of dlt's readers, connectorx."""
    url, folder, *tables = sys.argv[1:]
    source = sql_database(url, table_names=tables, backend="connectorx", reflection_level="full_with_precision")
    pipeline = dlt.pipeline(
        "copied",
        pipelines_dir=f"{folder}/.pipeline",
        destination=filesystem(Path(folder).as_uri()),
        dataset_name="data",
    )
    pipeline.run(source, table_format="delta", write_disposition="replace")


if __name__ == "__main__":
    main()
