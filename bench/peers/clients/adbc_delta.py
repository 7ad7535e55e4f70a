"""Copy tables with ADBC's driver into Delta tables: adbc_delta.py DSN FOLDER TABLE..."""

import sys
from pathlib import Path

import adbc_driver_postgresql.dbapi
from deltalake import write_deltalake


def main() -> None:
    """Copy one table after the other over one connection, in one snapshot."""
    dsn, folder, *tables = sys.argv[1:]
    with adbc_driver_postgresql.dbapi.connect(dsn) as conn, conn.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read read only")
        for table in tables:
            cursor.execute(f'select * from "{table}"')
            write_deltalake(Path(folder, table), cursor.fetch_record_batch())


if __name__ == "__main__":
    main()
