"""Two processes that write to one history: one is suspended right before a commit of Python, another one commits.

Every state is PostgreSQL's afterwards, each change is in the lake once, and no position moved back.
"""

import pytest

from tests.interleaved import AND_ON, Site, Writer, check_overtaken, shown, suspended_before_commit

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]

_FOLD, _SNAPSHOT = Writer("resync", 1), Writer("resync", 2)
"""The commits of a resync: the changes up to its snapshot, and the snapshot."""


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (Writer("apply"), ["apply"], 6),
        (Writer("apply"), ["merge"], 6),
        (Writer("apply"), ["maintain"], 0),
        (Writer("apply"), ["optimize"], 0),
        (Writer("apply"), ["resync"], 0),
        (Writer("apply"), ["resync", *AND_ON], 0),
        (Writer("maintain"), ["apply"], 0),
        (Writer("maintain"), ["merge"], 0),
        (Writer("maintain"), ["maintain"], 0),
        (Writer("maintain"), ["resync", *AND_ON], 0),
        (_FOLD, ["apply"], 0),
        (_FOLD, ["maintain"], 0),
        (_FOLD, ["resync"], 6),
        (_FOLD, ["resync", *AND_ON], 6),
        (_SNAPSHOT, ["maintain"], 0),
        (_SNAPSHOT, ["optimize"], 0),
        (_SNAPSHOT, ["resync"], 6),
        (_SNAPSHOT, ["resync", *AND_ON], 6),
    ],
    ids=shown,
)
def test_a_commit_that_was_overtaken(site: Site, first: Writer, second: list[str], code: int) -> None:
    """It is made anew on what the other one committed, or refused if the other one did the same work."""
    check_overtaken(site, first, second, code)


def test_changes_of_a_table_that_is_copied_again_are_not_applied(site: Site) -> None:
    """So no position can pass the snapshot before its commit; apply says so."""
    with suspended_before_commit(site, _SNAPSHOT) as process:
        site.run("change")
        applied = site.ended("apply")
        code, messages = process.resume()
    assert (applied.code, "public.orders is parked" in applied.stderr) == (3, True), applied.stderr
    assert code == 0, messages
    site.check()
