"""The rules of the fold: the text that Spark runs, and how stages are put together; moves of rows from key to key."""

from datetime import UTC, datetime
from importlib.resources import files
from random import Random
from typing import Any

import pyarrow as pa

from auditlake.delta.sql import as_relation, open_duckdb
from auditlake.fold.chains import ROOT_COLUMNS, roots
from auditlake.fold.net import SPARK_FILE, Executor, FoldColumns, stages_of
from auditlake.fold.stages import STAGES
from scripts.fold_stages import in_spark


def test_spark_runs_the_stages_of_duckdb() -> None:
    """After a change of a stage, or of sqlglot's translation, `scripts/fold_stages.py` has to write the file again."""
    assert files("auditlake.fold").joinpath(SPARK_FILE).read_text() == in_spark(STAGES)
    assert stages_of(Executor.SPARK).keys() == stages_of(Executor.DUCKDB).keys()


def test_an_empty_list_goes_with_its_comma() -> None:
    """Of a table without a key, whose changes are all inserts, the fold has no key."""
    inserted = FoldColumns(Executor.DUCKDB, (), ("number",)).stage("inserted", "changes")
    assert "'birth' as kind, number, lsn as _from_lsn" in inserted
    filled = FoldColumns(Executor.DUCKDB, ("k0",), ("number",)).stage("filled", "effects")
    assert "born, died, number\n" in filled


def test_every_word_of_a_stage_stands_for_a_list() -> None:
    """Whatever the table: with and without a key, TRUNCATE, moves and unchanged values."""
    keyed = FoldColumns(Executor.SPARK, ("k0", "r0"), ("new",), ("f1",), has_truncate=True, chain=("chain_lsn",))
    copies = FoldColumns(Executor.DUCKDB, ("row_id", "copy"), ("number",), numbers_copies=True)
    for form in (keyed, copies):
        for name in STAGES:
            assert "__" not in form.stage(name, "given", truncates="t", roots="r", one="f1")
    assert keyed.stage("filled", "given").lower().count("select") == 1


def test_a_row_is_identified_by_its_first_life() -> None:
    """Through several moves; a life that begins with an INSERT at a key continues none."""
    moves = pa.table(
        {
            "lsn": [30, 10, 20, 40],
            "ordinal": pa.array([1, 0, 5, 0], pa.int32()),
            "life_lsn": [20, 10, 10, 25],
            "life_ordinal": pa.array([5, 0, 0, 3], pa.int32()),
            "life_born": [True, False, True, True],
        }
    )
    found = roots(moves)
    assert found.column_names == list(ROOT_COLUMNS)
    first = (10, 0, False)
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (10, 0, *first),
        (20, 5, *first),
        (30, 1, *first),
        (40, 0, 25, 3, True),
    ]
    assert roots(moves.slice(0, 0)).num_rows == 0


def test_the_last_effects_leave_the_same_versions_open() -> None:
    """Of keys that were open before the tail and others, over transactions that each touch a key several times."""
    form, random = FoldColumns(Executor.DUCKDB, ("k0",), ("number",)), Random(7)  # noqa: S311 - no secret
    with open_duckdb() as connection:
        given = as_relation(connection, pa.Table.from_pylist(_effects(random, keys=200)))
        whole, last = (
            connection.sql(f"select kind, k0, number, _from_lsn, _to_lsn, _ordinal from ({query})").fetchall()
            for query in (form.net_rows(given), form.last_rows(given))
        )
    opened = [sorted(row[1:] for row in rows if row[0] != "close" and row[4] is None) for rows in (whole, last)]
    closed = [sorted(row[1] for row in rows if row[0] == "close") for rows in (whole, last)]
    assert (opened[0], closed[0]) == (opened[1], closed[1])
    assert 0 < len(opened[0]) < 200 > len(closed[0]) > 0


def _effects(random: Random, keys: int) -> list[dict[str, Any]]:
    """Return effects on keys, of which half exist before."""
    found = list[dict[str, Any]]()
    for key in range(keys):
        exists = key % 2 == 0
        for lsn, ordinal in sorted({(random.randint(1, 4), random.randint(1, 4)) for _ in range(random.randint(1, 6))}):
            op = random.choice(["update", "delete"]) if exists else "insert"
            exists = op != "delete"
            place = {"lsn": lsn, "ordinal": ordinal, "xid": lsn, "time": datetime.fromtimestamp(lsn, UTC)}
            effect = {"k0": key, "op": op, "born": op == "insert", "died": op == "delete", "number": len(found)}
            found.append(place | effect)
    return found
