"""Attempts: their number, the pauses between them, and the error after the last."""

import time

import pytest

from auditlake.errors import LakeConflict
from auditlake.store.attempts import attempts


def test_each_pause_is_at_most_twice_as_long_as_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random, but at least half of that; none is longer than five seconds, and there is none after the last attempt."""
    pauses = list[float]()
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(LakeConflict, match="8 attempts to write the table lost against writes") as refused:
        list(attempts(8, "the table", "Try later.", pause_s=0.1))
    assert refused.value.hint == "Try later."
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert [limit / 2 <= pause <= limit for pause, limit in zip(pauses, longest, strict=True)] == [True] * 7


def test_who_succeeds_does_not_wait() -> None:
    """Nor does another attempt begin."""
    made = list[int]()
    for number, _ in enumerate(attempts(3, "the table", "Try later.", pause_s=60.0)):
        made.append(number)
        break
    assert made == [0]
