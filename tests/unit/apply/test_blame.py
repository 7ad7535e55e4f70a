"""Which commit is blamed when a tail cannot be folded: the first one that fails alone, if any does."""

from pathlib import Path
from typing import Any, cast

import pytest

import auditlake.apply.apply as applying
from auditlake.apply.errors import CannotFold
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn

_COMMITS = [Lsn(10 * number) for number in range(1, 8)]


class _History:
    """A history; the commit `bad` always fails, and `fails_once` the first time that it is part of a fold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bad: int | None, fails_once: int | None) -> None:
        self.position, self._bad, self._fails_once = 0, bad, fails_once
        monkeypatch.setattr(applying, "open_log", lambda _: object())
        monkeypatch.setattr(applying, "find_commits", lambda *_: _COMMITS)
        monkeypatch.setattr(applying, "_read_again", lambda _, __, upto: [upto])

    def write(self, upto: Any) -> None:
        """Fold the commits after the position."""
        part = range(self.position + 1, upto + 1)
        if self._fails_once in part:
            self._fails_once = None
            raise CannotFold("once")
        if self._bad in part:
            raise CannotFold("always")
        self.position = upto

    def fold_before(self) -> tuple[Lsn, Exception] | None:
        """Fold after the failure of the whole tail."""
        lake, tail = Lake(Path("lake")), cast("Any", None)
        return applying._fold_before(lake, tail, CannotFold("the whole"), self.write)  # noqa: SLF001 - the search itself


@pytest.mark.parametrize("bad", _COMMITS)
def test_the_first_commit_that_fails_alone_is_blamed(monkeypatch: pytest.MonkeyPatch, bad: Lsn) -> None:
    """All before it are folded, none after it; its own failure is reported."""
    history = _History(monkeypatch, bad, None)
    found = history.fold_before()
    assert found is not None
    assert (found[0], str(found[1])) == (bad, "always")
    assert history.position == bad - 10


def test_no_commit_is_blamed_if_none_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole tail failed, its parts do not."""
    history = _History(monkeypatch, None, None)
    assert history.fold_before() is None
    assert history.position == _COMMITS[-1]


@pytest.mark.parametrize("once", _COMMITS[:-1])
@pytest.mark.parametrize("bad", [None, _COMMITS[-1]])
def test_a_failure_that_does_not_repeat_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, once: Lsn, bad: Lsn | None
) -> None:
    """It was that of several commits, and the search goes on behind them."""
    history = _History(monkeypatch, bad, once)
    found = history.fold_before()
    assert (found and found[0]) == bad
    assert history.position == (_COMMITS[-1] if bad is None else bad - 10)
