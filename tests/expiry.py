"""A period of retention with which versions expire as soon as they have ended."""

from auditlake.settings.retention_rules import RetentionPeriod


class _AtOnce(RetentionPeriod):
    """No time at all, which the settings do not accept."""

    def before(self, time_us: int) -> int | None:
        """Return the time itself."""
        return time_us


AT_ONCE = _AtOnce()
