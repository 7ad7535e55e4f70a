"""Names of tables and columns that would forge lines and colours of a terminal, in what `verify` prints."""

from pathlib import Path

import pytest

from tests.unit.test_hostile_names import require_shown

pytestmark = pytest.mark.spark


@pytest.mark.usefixtures("spark")
def test_verify_shows_a_table_with_a_hostile_name(tmp_path: Path) -> None:
    """As one of a report."""
    require_shown(tmp_path / "lake", ["verify", "--no-source", "--format", "json"])
