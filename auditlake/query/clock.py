"""A SQL function from a time to its LSN, for engines that know nothing of auditlake. Pure.

    select auditlake.lsn_at(timestamp '2026-11-21 09:30:00Z')

It finds what `moments.resolve` finds, in the table `transactions` as far as it was whole when the function was written,
and fails for a time that was not known then; so its answers never change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from auditlake.literals import standard_literal
from auditlake.lsn import Lsn
from auditlake.query.views import ENGINES, LSN_AT, functions_of
from auditlake.query.when import format_us

_PARAMETER = "_at_time"


@dataclass(frozen=True, slots=True)
class Clock:
    """What is known of times: where transactions are, the last one, the end of what is known, and each snapshot.

    Times are microseconds since 1970; `snapshots` are pairs of time and LSN.
    """

    transactions: Path
    watermark: Lsn
    current_us: int
    snapshots: Sequence[tuple[int, Lsn]]


def lsn_at(name: str, clock: Clock) -> Sequence[str]:
    """Give the statements that make the function for the engine called `name`; raises as `functions_of`."""
    engine, functions = ENGINES[name], functions_of(name)
    micros = f"{functions.micros}({_PARAMETER})"
    path = str(clock.transactions)
    source = engine.table.format(text=standard_literal(path), path=engine.name(path))
    last = (
        f"select max({engine.name('lsn')}) from {source}"
        f" where {engine.name('lsn')} <= {clock.watermark:d} and {engine.name('time_mono')} <= {_PARAMETER}"
    )
    snapshots = [f"case when {micros} >= {taken_us} then {lsn:d} end" for taken_us, lsn in clock.snapshots]
    found = f"greatest({', '.join([f'({last})', 'cast(null as bigint)', *snapshots])})"
    early = functions.fail.format(standard_literal("this lake begins later"))
    late = functions.fail.format(standard_literal(f"this lake knew every commit up to {format_us(clock.current_us)}"))
    # Else the transactions would be looked through twice.
    expression = f"case when {micros} > {clock.current_us} then {late}\n else coalesce({found}, {early}) end"
    parameter = f"{_PARAMETER} timestamp" if functions.typed else _PARAMETER
    return (
        f"create schema if not exists {engine.name(LSN_AT[0])}",
        functions.value.format(name=engine.name(*LSN_AT), parameter=parameter, expression=expression),
    )
