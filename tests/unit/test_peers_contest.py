"""A contest of `make peers`: turns, the warm-up, patience, contenders that cannot run, and the digest of dates."""

from pathlib import Path

import duckdb
import pytest
from peers.arena import Absent
from peers.contest import Contender, contest
from peers.digest import Column, Digest, of_relation
from peers.measured import Figures, PeerFailed, middle


class _Stub:
    """Notes its turns, and takes 10 seconds less each time."""

    def __init__(self, name: str, turns: list[str], first_s: float = 100, fails: Exception | None = None) -> None:
        self._name, self._turns, self._next_s, self._fails = name, turns, first_s, fails

    def contender(self) -> Contender:
        return Contender(self._name, self._measure, lambda _: Digest(1, "abc"))

    def _measure(self, _: Path) -> Figures:
        self._turns.append(self._name)
        if self._fails:
            raise self._fails
        self._next_s -= 10
        return {"wall_s": self._next_s + 10}


def test_turns_rotate_and_the_warm_up_does_not_count(tmp_path: Path) -> None:
    """Each is first once; the results are those of the later rounds, the digest that of the first."""
    turns: list[str] = []
    stubs = [_Stub(name, turns).contender() for name in "abc"]
    tried = contest(stubs, 2, tmp_path, 1000)
    assert "".join(turns) == "abc" + "bca" + "cab"
    assert [figures["wall_s"] for figures in tried["a"].runs] == [90, 80]
    assert tried["a"].digest == Digest(1, "abc")


def test_who_takes_longer_than_our_patience_runs_once(tmp_path: Path) -> None:
    """Its only run is that of the first round."""
    turns: list[str] = []
    tried = contest([_Stub("slow", turns).contender(), _Stub("fast", turns, 20).contender()], 2, tmp_path, 99)
    assert turns.count("slow") == 1
    assert [figures["wall_s"] for figures in tried["slow"].runs] == [100]
    assert [figures["wall_s"] for figures in tried["fast"].runs] == [10, 0]


@pytest.mark.parametrize("reason", [Absent("not installed"), PeerFailed("ended with 1")])
def test_who_cannot_run_is_left_out_with_the_reason(tmp_path: Path, reason: Exception) -> None:
    """The others go on."""
    turns: list[str] = []
    stubs = [_Stub("absent", turns, fails=reason).contender(), _Stub("other", turns).contender()]
    tried = contest(stubs, 2, tmp_path, 1000)
    assert turns == ["absent", "other", "other", "other"]
    assert (tried["absent"].absent, tried["absent"].runs) == (str(reason), [])
    assert len(tried["other"].runs) == 2


def test_a_median_of_what_is_unknown_is_unknown() -> None:
    """A subscription has no client whose memory could be measured."""
    runs: list[Figures] = [{"wall_s": value, "peak_mb": None} for value in (3.0, 1.0, 2.0)]
    assert middle(runs) == {"wall_s": 2.0, "peak_mb": None}


def test_dates_in_days_have_the_digest_of_dates() -> None:
    """Debezium leaves the days since 1970, also negative ones, as text."""
    days, dates = (Column("d", "date", -1, key=False, days=days) for days in (True, False))
    with duckdb.connect() as conn:
        left = of_relation(conn, "(values ('9573'), ('-1'), (null)) as rows(d)", [days])
        expected = of_relation(conn, "(values ('1996-03-18'), ('1969-12-31'), (null)) as rows(d)", [dates])
    assert left == expected
