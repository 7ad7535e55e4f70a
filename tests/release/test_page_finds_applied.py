"""The page finds former values in a history to which schema changes have been applied, as it does in the tail."""

from pathlib import Path

import psycopg
import pytest

from tests import command
from tests.capture_once import capture
from tests.crash.killed import SPARK
from tests.page import Page
from tests.postgres.test_page_finds import change_items, require_found

pytestmark = [pytest.mark.pg, pytest.mark.spark]


def test_former_values_are_found_after_apply(database: str, tmp_path: Path) -> None:
    """Every value is found in the same rows as before apply."""
    with psycopg.connect(database, autocommit=True) as conn:
        lake, before = change_items(conn, database, tmp_path)
        applied = command.run(["apply", "--until-current", "--lake", str(lake.root)], SPARK)
        assert applied.code == 0, applied.stderr
        conn.execute("update goods set n = n + 1")
        capture(database, lake)
    require_found(Page(lake), "goods", before)
