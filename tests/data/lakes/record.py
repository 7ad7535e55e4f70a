"""Record a small lake of the current format: `python -m tests.data.lakes.record FORMAT`, when a version is released.

It has what formats are made of: histories that were applied twice, deletion vectors, an added column, a table without a
key, a change of a key, a truncate, and two transactions that no history has yet. `tests/unit/lake/test_formats.py`
knows its content.
"""

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NoReturn

from auditlake.apply.apply import apply_pending
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.server import Server, chosen_version, execute

_FOLDER = Path(__file__).parent
_TABLES = (
    "create table orders (id int primary key, status text, total numeric(10, 2))",
    "create table notes (body text)",
    "alter table notes replica identity full",
)
_APPLIED = (
    ("insert into orders values (1, 'new', 10), (2, 'new', 20.5), (3, 'new', 'NaN')", "insert into notes values ('a')"),
    (
        "update orders set status = 'paid' where id = 1",
        "alter table orders add note text",
        "update orders set id = 20 where id = 2",
        "insert into notes values ('a'), ('b')",
        "delete from orders where id = 3",
    ),
)
_WAITING = ("truncate notes", "insert into orders values (4, 'new', 40, 'late')")


def record(dsn: str, root: Path) -> None:
    """Write the lake."""
    execute(dsn, *_TABLES)
    lake = make_lake(dsn, root)
    for statements in _APPLIED:
        execute(dsn, *statements)
        capture(dsn, lake)
        apply_pending(_no_spark, lake)
    execute(dsn, *_WAITING)
    capture(dsn, lake)


def _no_spark() -> NoReturn:
    raise AssertionError


def main() -> None:
    """Write the archive."""
    with tempfile.TemporaryDirectory() as folder, Server(chosen_version()) as server:
        root = Path(folder) / "lake"
        record(server.dsn(server.create_database()), root)
        with tarfile.open(_FOLDER / f"format-{sys.argv[1]}.tar.xz", "w:xz") as archive:
            archive.add(root, "lake")


if __name__ == "__main__":
    main()
