"""Bootstrap and capture killed after the effects that `make test` leaves out."""

from pathlib import Path

import pytest

from auditlake.failpoints import After
from tests.crash.test_bootstrap import kill_bootstrap
from tests.crash.test_capture import Kill, kill_capture

pytestmark = [pytest.mark.pg, pytest.mark.crash]


@pytest.mark.parametrize("place", [After.MANIFEST_WRITTEN, After.MANIFEST, After.PUBLICATION, After.HISTORY_CREATED])
def test_a_killed_bootstrap_continues_with_the_same_slot(database: str, tmp_path: Path, place: After) -> None:
    """Before its slot exists, or before a table is copied."""
    kill_bootstrap(database, tmp_path, place)


@pytest.mark.parametrize(
    "kill",
    [Kill(After.RELATIONS, 1), Kill(After.TRANSACTIONS, 1), Kill(After.CHANGES, 4), Kill(After.PART, 2, large=True)],
    ids=str,
)
def test_a_killed_capture_continues_and_every_change_is_there_once(database: str, tmp_path: Path, kill: Kill) -> None:
    """At the first effects of a run, and at later ones."""
    kill_capture(database, tmp_path, kill)
