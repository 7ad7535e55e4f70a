"""Holds on keys of types whose equality is not that of their text: another text of the same key is held, or named."""

from pathlib import Path

import psycopg
import pytest

from auditlake.lake.layout import Lake
from tests.capture_once import capture
from tests.command import Done, run_here
from tests.erasure_lake import apply

pytestmark = pytest.mark.pg

_CASES = {
    "numeric": ("1.5", "1.50", "1.5"),
    "numeric(6,2)": ("1.5", "1.5", "1.50"),
    "char(4)": ("ab", "ab", "ab"),
    "float8": ("0", "-0", "0"),
    "interval": ("1 day", "24:00:00", "1 day"),
}
"""By type: a key as it is written first and then, which is equal, and as a user types the first one."""


@pytest.mark.parametrize("kind", _CASES)
def test_a_row_is_held_under_every_text_of_its_key(database: str, tmp_path: Path, kind: str) -> None:
    """Which it had. Another row that had an equal key later is held, too, or whoever adds the hold is told."""
    first, second, typed = _CASES[kind]
    with psycopg.connect(database, autocommit=True) as conn:
        for name in ("one", "two"):
            conn.execute(f"create table {name} (id {kind} primary key)")
        settings: list[str | Path] = ["--source", database, "--engine", "duckdb", "--lake", tmp_path / "lake"]
        assert run_here(["bootstrap", *settings]).code == 0
        conn.execute(f"insert into one values ('{first}')")
        conn.execute(f"update one set id = '{second}'")
        conn.execute("delete from one")
        for key in (first, second):
            conn.execute(f"insert into two values ('{key}')")
            conn.execute("delete from two")
    capture(database, Lake(tmp_path / "lake"))
    apply(Lake(tmp_path / "lake"))

    def ask(*line: str) -> Done:
        return run_here([*line[:2], "--reason", "x", "--lake", tmp_path / "lake", *line[2:]])

    def is_held(table: str, key: str) -> bool:
        done = ask("forget", table, "--", key)
        assert done.code == 0 or "is held by " in done.stderr, done.stderr
        return done.code == 3

    for table in ("one", "two"):
        held = ask("hold", "add", f"of-{table}", "--table", table, f"--key={typed}")
        assert held.code == 0, held.stderr
        assert is_held(table, first)
        assert is_held(table, typed)
        assert is_held(table, second) or (table == "two" and "hold the rows under each of these" in held.stderr)


def test_a_row_of_one_transaction_is_held(database: str, tmp_path: Path) -> None:
    """It has no version, but `forget` would remove its changes."""
    settings: list[str | Path] = ["--source", database, "--engine", "duckdb", "--lake", tmp_path / "lake"]
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, v text)")
        assert run_here(["bootstrap", *settings]).code == 0
        with conn.transaction():
            conn.execute("insert into t values (9, 'evidence')")
            conn.execute("delete from t")
    capture(database, Lake(tmp_path / "lake"))
    apply(Lake(tmp_path / "lake"))
    given: list[str | Path] = ["--reason", "x", "--lake", tmp_path / "lake"]
    assert run_here(["hold", "add", "never", "--table", "t", "--key", "8", *given]).code == 7
    assert run_here(["hold", "add", "case", "--table", "t", "--key", "9", *given]).code == 0
    refused = run_here(["forget", "t", "9", *given])
    assert (refused.code, "is held by case" in refused.stderr) == (3, True), refused
