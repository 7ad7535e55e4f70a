"""Every failure auditlake reports, split by what the operator does next.

    AuditlakeError
    ├── BadUsage          2  change the command line or the SQL
    ├── ConfigError       3  change the settings
    ├── SourceUnready     3  change something on the PostgreSQL side, `check` lists it
    ├── Unsupported       3  legal, but this version does not do it; nothing was lost
    ├── SourceUnreachable 4  fix the connection; of its class SourceAway, wait
    ├── WrongSource       5  slot, system or database is not the one the lake records
    ├── LakeUnusable      6  fix the lake's folder, or the place or the witness of its digests
    ├── LakeConflict      6  another writer holds the lake
    ├── NotAnswerable     7  the question has no exact answer here
    ├── DecodeError       1  the stream breaks the protocol: report it
    └── InvariantBroken   1  a bug: report it

A class also says whether a failure is final or temporary (`retryable`): a run tries again only after the latter, which
are SourceAway and its classes. Messages are lower case, name the object and both values; hints are sentences with the
next command. Values of user rows and passwords never appear in either. A text that a client sent may appear, so a long
message is shortened.
"""

from collections.abc import Sequence

_LONGEST = 4_000


def _shortened(text: str) -> str:
    """Return a text of at most `_LONGEST` characters and a few: both ends of a longer one."""
    omitted, kept = len(text) - _LONGEST, _LONGEST // 2
    return text if omitted <= 0 else f"{text[:kept]} … {omitted:,} characters … {text[-kept:]}"


class AuditlakeError(Exception):
    """A failure with an exit code and, if there is one, the next step as `hint`."""

    exit_code = 1
    retryable = False

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message = _shortened(message)
        self.hint = None if hint is None else _shortened(hint)
        super().__init__(self.message)

    def __reduce__(self) -> tuple[type["AuditlakeError"], tuple[str, str | None]]:
        # Spark workers return exceptions by pickle.
        return type(self), (self.message, self.hint)


def all_in_one(errors: Sequence[AuditlakeError]) -> AuditlakeError:
    """Combine failures into one: the lowest exit code, so that a bug comes first, and all messages."""
    if len(errors) == 1:
        return errors[0]
    kind = type(min(errors, key=lambda error: error.exit_code))
    hints = dict.fromkeys(error.hint for error in errors if error.hint)
    return kind("; ".join(error.message for error in errors), " ".join(hints) or None)


class BadUsage(AuditlakeError):
    """The command line or the SQL cannot be understood."""

    exit_code = 2


class ConfigError(AuditlakeError):
    """A setting is missing or contradicts another."""

    exit_code = 3


class SourceUnready(AuditlakeError):
    """PostgreSQL is not set up for this; nothing was changed."""

    exit_code = 3


class Unsupported(AuditlakeError):
    """Legal, but not supported by this version; stopped before anything was lost."""

    exit_code = 3


class SourceUnreachable(AuditlakeError):
    """No connection to PostgreSQL, or it refuses ours."""

    exit_code = 4


class SourceAway(SourceUnreachable):
    """No connection to PostgreSQL at the moment."""

    retryable = True


class SourceRefuses(SourceAway):
    """PostgreSQL refuses a connection, which may pass: but not for a run that never had one."""


class WrongSource(AuditlakeError):
    """The slot, system or database is not the one this lake records."""

    exit_code = 5


class LakeUnusable(AuditlakeError):
    """The lake cannot be read or written, or its digests, backups or temporary files."""

    exit_code = 6


class TableUnreadable(LakeUnusable):
    """A table cannot be read, and the failure does not name the damaged file."""


class LakeConflict(AuditlakeError):
    """Another process writes what this one writes."""

    exit_code = 6


class NotAnswerable(AuditlakeError):
    """The question cannot be answered exactly from what the lake holds."""

    exit_code = 7


class DecodeError(AuditlakeError):
    """Bytes on the replication stream break the protocol."""


class InvariantBroken(AuditlakeError):
    """Something that cannot happen did: a bug in auditlake."""
