"""`verify` compares a history with its table at the source, also if that is renamed, or another one has its name."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from auditlake.apply.apply import apply_pending
from auditlake.lake.layout import Lake
from tests.capture_once import capture
from tests.command import run_here
from tests.running import Running
from tests.server import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]


def test_tables_that_were_renamed_or_created_again_are_compared(
    database: str, spark: "SparkSession", tmp_path: Path
) -> None:
    """The first `t` was dropped; its history must not be compared with the table that has its name now."""
    lake = Lake(tmp_path / "lake")
    line: list[str | Path] = ["--source", database, "--lake", lake.root]
    made = "create table {0} (id int primary key); insert into {0} values (1)"
    execute(database, *map(made.format, "tu"), "create publication auditlake for all tables")
    assert run_here(["bootstrap", *line]).code == 0
    execute(database, "alter table u rename to w; insert into w values (2)", "drop table t", made.format("t"))
    capture(database, lake)
    assert run_here(["bootstrap", *line]).code == 0
    execute(database, "insert into t values (2), (3)")
    capture(database, lake)
    apply_pending(lambda: spark, lake)
    with Running(database, lake):
        done = run_here(["verify", "--format", "json", *line])
    found = [each for each in map(json.loads, done.stdout.splitlines()) if each["event"] == "table"]
    again = next(each["table"] for each in found if "@" in each["table"])
    rows = {each["table"]: (each.get("rows"), each["verdict"]) for each in found}
    assert (done.code, rows) == (0, {"public.t": (None, "skipped"), again: (3, "equal"), "public.u": (2, "equal")})
