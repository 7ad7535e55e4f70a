"""The notebook runs from top to bottom, on a small lake, and finds what is in it."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.small_lake import write_small_lake

pytestmark = pytest.mark.spark

_NOTEBOOK = Path(__file__).parents[2] / "docs" / "asking.ipynb"


def test_notebook(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell runs, in the session that is there; the answers are those of the small lake's docstring."""
    write_small_lake(tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    cells = json.loads(_NOTEBOOK.read_text())["cells"]
    found: dict[str, Any] = {}
    try:
        for cell in cells:
            if cell["cell_type"] == "code":
                assert cell["outputs"] == []
                exec("".join(cell["source"]), found)  # noqa: S102 - it is ours
        assert found["spark"].sparkContext is spark.sparkContext
        assert [tuple(row) for row in found["changed"]] == [(1, "a", "b")]
        assert [row["note"] for row in found["versions"]] == ["a", "b", "c"]
        assert [tuple(row) for row in found["joined"]] == [("b", "Ann")]
    finally:
        for view in found.get("views", []):
            spark.catalog.dropTempView(view)
