"""The two forms of the as-of predicate agree with each other and with the half-open period."""

import sqlite3

from auditlake.lsn import Lsn
from auditlake.temporal.as_of_predicate import as_of_sql, is_as_of

_LSNS = [Lsn(number) for number in range(4)]
_PERIODS = [(begin, end) for begin in _LSNS for end in (None, *_LSNS) if end is None or begin < end]


def test_a_version_is_valid_from_its_first_lsn_to_the_one_before_its_end() -> None:
    """The period is half-open; an open version stays valid."""
    for begin, end in _PERIODS:
        valid = [lsn for lsn in _LSNS if is_as_of(lsn, begin, end)]
        assert valid == _LSNS[begin:end]


def test_sql_and_python_select_the_same_versions() -> None:
    """SQL is evaluated by SQLite, for a literal LSN and for a named expression with other column names."""
    engine = sqlite3.connect(":memory:")
    for begin, end in _PERIODS:
        for lsn in _LSNS:
            literal = f"select {as_of_sql(lsn)} from (select ? as _from_lsn, ? as _to_lsn)"
            named = as_of_sql("at_lsn", from_lsn='"b"', to_lsn='"e"')
            parametrised = f"select {named} from (select ? as b, ? as e, {lsn:d} as at_lsn)"
            for query in (literal, parametrised):
                (valid,) = engine.execute(query, (begin, end)).fetchone()
                assert bool(valid) == is_as_of(lsn, begin, end), query
    engine.close()


def test_a_condition_on_versions_can_follow_the_predicate() -> None:
    """`and` after the text needs no parentheses around it."""
    assert as_of_sql(Lsn(7)) == "_from_lsn <= 7 and (_to_lsn is null or _to_lsn > 7)"
