"""Copy tables with DuckDB's reader of PostgreSQL into Parquet files: duckdb_parquet.py DSN FOLDER TABLE..."""

import sys
from pathlib import Path

import duckdb
import duckdb_extension_postgres_scanner


def main() -> None:
    """Copy one table after the other; the extension divides each over its connections, in one snapshot."""
    dsn, folder, *tables = sys.argv[1:]
    package = Path(duckdb_extension_postgres_scanner.__file__).parent
    (extension,) = package.rglob("postgres_scanner.duckdb_extension")
    Path(folder).mkdir(parents=True)
    with duckdb.connect() as conn:
        conn.execute(f"load '{extension}'")
        conn.execute(f"attach '{dsn}' as pg (type postgres, read_only)")
        conn.execute("begin")
        for table in tables:
            conn.execute(f"""copy pg.public."{table}" to '{folder}/{table}.parquet' (format parquet)""")


if __name__ == "__main__":
    main()
