"""`verify` of histories whose key changed, while rows change or not, with the DDL trigger or without it."""

from pathlib import Path

import pytest

from tests.spark.test_verified_keys import changed_keys

pytestmark = [pytest.mark.pg, pytest.mark.spark]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_a_changed_key_is_no_damage(database: str, tmp_path: Path, *, with_trigger: bool, busy: bool) -> None:
    """Keys get another type, another name, other columns, or none."""
    changed_keys(database, tmp_path, with_trigger=with_trigger, busy=busy)
