"""Two processes that write to one history: one is suspended right before a commit of its JVM, another one commits.

Every state is PostgreSQL's afterwards, each change is in the lake once, and no position moved back. A JVM whose Python
process was killed meanwhile may still commit, or finds that another process did.
"""

import pytest

from auditlake.delta.log_reader import entry
from auditlake.lake.compaction import fence
from auditlake.lake.histories import list_histories
from auditlake.spark.log_store import FENCE
from tests.interleaved import AND_ON, Site, Writer, check_overtaken, shown, suspended_before_commit

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("merge", ["apply"], 6),
        ("merge", ["maintain"], 0),
        ("merge", ["resync", *AND_ON], 0),
        ("optimize", ["apply"], 0),
        ("optimize", ["maintain"], 0),
        ("optimize", ["resync", *AND_ON], 0),
        ("optimize", ["merge"], 0),
    ],
    ids=shown,
)
def test_a_commit_that_was_overtaken(site: Site, first: str, second: list[str], code: int) -> None:
    """It is made anew on what the other one committed, or refused if the other one did the same work."""
    check_overtaken(site, Writer(first), second, code)


@pytest.mark.parametrize("first", ["merge", "optimize"])
def test_a_jvm_whose_python_process_was_killed_commits(site: Site, first: str) -> None:
    """Its commit is the next version."""
    with suspended_before_commit(site, Writer(first)) as process:
        process.kill_parent()
        version = site.version
        process.resume_orphan()
    assert site.version == version + 1
    site.check()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("merge", ["apply", *AND_ON]),
        ("merge", ["maintain"]),
        ("merge", ["resync", *AND_ON]),
        ("optimize", ["apply"]),
    ],
    ids=shown,
)
def test_a_jvm_that_wakes_late_commits_nothing(site: Site, first: str, second: list[str]) -> None:
    """Its Python process was killed, and another process did the same work, or replaced the files that it had read."""
    with suspended_before_commit(site, Writer(first)) as process:
        process.kill_parent()
        site.run(*second)
        version = site.version
        process.resume_orphan()
    assert site.version == version
    site.check()


def test_no_optimize_that_was_planned_before_a_vacuum_is_committed(site: Site) -> None:
    """A vacuum may delete its files right after Delta has seen them, so it may not go on with the next version."""
    with suspended_before_commit(site, Writer("optimize")) as process:
        (history,) = list_histories(site.lake)
        assert fence(history)
        code, messages = process.resume()
    assert (code, "another process commits to it, run this again" in messages) == (0, True), messages
    infos = [action["commitInfo"] for action in entry(history.path, site.version) if "commitInfo" in action]
    assert [info["operation"] for info in infos] == [FENCE]
    site.check()
