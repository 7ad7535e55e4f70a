"""The notebook runs on its own lake, and its stored outputs are current."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scripts.notebook import NOTEBOOK, outputs_of

pytestmark = [pytest.mark.pg, pytest.mark.spark]


def test_the_stored_outputs_are_current(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All cells in order, in the session of the tests and in any folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    try:
        found = outputs_of(cells)
        assert found == [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
        assert sum(map(bool, found)) > len(found) // 2
    finally:
        for view in ("orders", "customers", "public__orders", "public__customers"):
            spark.catalog.dropTempView(view)
