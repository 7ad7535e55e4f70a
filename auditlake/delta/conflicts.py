"""Exceptions that mean another commit won: Delta's and ours, in one tuple to catch.

`DeltaConcurrentModificationException` is the base of the others in Scala but only their sibling in Python: to catch it
alone catches none of them.

Authority: docs.delta.io, "Concurrency control"
"""

from delta import exceptions


class Overtaken(Exception):
    """Another commit took the version planned for ours."""


COMMIT_CONFLICTS = (
    Overtaken,
    exceptions.ConcurrentAppendException,
    exceptions.ConcurrentDeleteDeleteException,
    exceptions.ConcurrentDeleteReadException,
    exceptions.ConcurrentTransactionException,
    exceptions.ConcurrentWriteException,
    exceptions.DeltaConcurrentModificationException,
    exceptions.MetadataChangedException,
    exceptions.ProtocolChangedException,
)
