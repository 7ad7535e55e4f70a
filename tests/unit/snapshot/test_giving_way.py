"""A copy that gave way to other sessions begins again, at growing pauses, until several copied nothing."""

from auditlake.errors import SourceUnready
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.snapshot.bootstrap import Pauses
from auditlake.snapshot.progress import CopiedTable, Progress
from auditlake.source.lock_waits import GaveWay

_A, _B = TableName("public", "a"), TableName("public", "b")


def test_pauses_grow_until_attempts_that_copy_nothing_end() -> None:
    """Six pauses, the longest a minute; after a copied table they start at the first again."""
    progress, pauses = Progress(), Pauses()
    progress.fail(_A, GaveWay("waited"))
    assert [pauses.next_s(progress.state()) for _ in range(3)] == [1, 2, 5]
    progress.finish(CopiedTable(_B, 1, 1, 1.0, Lsn(1)))
    assert [pauses.next_s(progress.state()) for _ in range(8)] == [1, 1, 2, 5, 15, 30, 60, None]


def test_other_failures_are_not_repeated() -> None:
    """A table that cannot be read fails at once; a new start forgets failures and keeps copied tables."""
    progress, pauses = Progress(), Pauses()
    progress.finish(CopiedTable(_B, 1, 1, 1.0, Lsn(1)))
    progress.fail(_A, SourceUnready("unreadable"))
    assert pauses.next_s(progress.state()) is None
    progress.begin_again()
    state = progress.state()
    assert (state.failed, [table.name for table in state.copied]) == ((), [_B])
