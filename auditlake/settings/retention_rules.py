"""Periods of retention: how long closed versions are kept after their end, and what the log has after its commit.

    90 days   12 weeks   18 months   7 years   forever

Months and years are those of the calendar in UTC: one month before 31 March is the last day of February. Pure.
"""

import math
import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import timedelta

from auditlake.instants import to_time, to_us

FOREVER = "forever"
_PERIOD = re.compile(r"([1-9][0-9]{0,4}) +(day|week|month|year)s?")
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12}
_DAYS_OF_MONTH = 365.2425 / 12


@dataclass(frozen=True, slots=True)
class RetentionPeriod:
    """A number of days or of calendar months; both are 0 for ever."""

    days: int = 0
    months: int = 0

    @property
    def about_days(self) -> float:
        """Return the length in days of 24 hours, with months of an average length."""
        return self.days + self.months * _DAYS_OF_MONTH if self.days or self.months else math.inf

    def before(self, time_us: int) -> int | None:
        """Return the time that is earlier by the period, in microseconds since 1970; None if there is none."""
        if not self.days and not self.months:
            return None
        at = to_time(time_us)
        year, month = divmod(at.year * 12 + at.month - 1 - self.months, 12)
        if year < 1:
            return None
        try:
            day = min(at.day, monthrange(year, month + 1)[1])
            earlier = at.replace(year=year, month=month + 1, day=day) - timedelta(days=self.days)
        except OverflowError:
            return None
        return to_us(earlier)


def parse_period(text: str) -> RetentionPeriod:
    """Parse a period; raises ValueError."""
    words = " ".join(text.split())
    if words == FOREVER:
        return RetentionPeriod()
    found = _PERIOD.fullmatch(words)
    if found is None:
        raise ValueError(f"has {text!r}, need for example 90 days, 12 weeks, 18 months, 7 years or {FOREVER}")
    count, unit = int(found[1]), found[2]
    return RetentionPeriod(count * _DAYS.get(unit, 0), count * _MONTHS.get(unit, 0))


Rules = tuple[tuple[str, RetentionPeriod], ...]
"""Patterns of `schema.table`, each with its period; the first that matches a table decides."""


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """How long the versions of tables are kept, and the rows of `changes` and `transactions`.

    Transactions are kept at least as long as changes, which are shown with them, and as versions, whose ends they date.
    """

    versions: Rules = ()
    changes: RetentionPeriod = RetentionPeriod()
    transactions: RetentionPeriod = RetentionPeriod()

    def require_transactions(self) -> None:
        """Require that transactions are kept that long, versions that are kept for ever aside; raises ValueError."""
        needing = [("changes", self.changes), *((f"versions {name!r}", period) for name, period in self.versions)]
        for name, period in needing:
            is_needed = period != RetentionPeriod() or name == "changes"
            if is_needed and self.transactions.about_days < period.about_days:
                raise ValueError(f"has transactions for less long than {name}, which need them")

    @property
    def is_everything(self) -> bool:
        """Return whether nothing expires."""
        return not self.versions and self.changes == self.transactions == RetentionPeriod()
