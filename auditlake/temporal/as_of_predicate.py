"""As-of predicate: which versions make up a table's state at a commit LSN. Pure.

A version is valid in the half-open period [`_from_lsn`, `_to_lsn`); an open version has no `_to_lsn`. It belongs to the
state at L, the moment just after the commit at L, if

    _from_lsn <= L and (_to_lsn is null or _to_lsn > L)

`as_of_sql` is that text, in SQL that Spark (`DataFrame.where`), DataFusion, DuckDB and Trino read alike. `is_as_of` is
the same predicate for plain values, such as the statistics of a data file. Nothing else in auditlake spells it.
"""


def as_of_sql(lsn: int | str, *, from_lsn: str = "_from_lsn", to_lsn: str = "_to_lsn") -> str:
    """Return the condition for the versions valid at `lsn`, an LSN or an SQL expression of one."""
    at = _sql(lsn)
    return f"{from_lsn} <= {at} and {ends_after_sql(at, to_lsn=to_lsn)}"


def ends_after_sql(lsn: int | str, *, to_lsn: str = "_to_lsn") -> str:
    """Return the condition for the versions that are open, or closed after `lsn`."""
    return f"({to_lsn} is null or {to_lsn} > {_sql(lsn)})"


def is_as_of(lsn: int, from_lsn: int, to_lsn: int | None) -> bool:
    """Return whether a version with this period is valid at `lsn`; `to_lsn` None is open."""
    return from_lsn <= lsn and (to_lsn is None or to_lsn > lsn)


def _sql(lsn: int | str) -> str:
    return lsn if isinstance(lsn, str) else f"{lsn:d}"
