"""What is said when another commit came first, by Delta's Python classes and by us, in one tuple to catch.

`DeltaConcurrentModificationException` is the base of the others in Scala, and only their sibling in Python: caught
alone it catches none of them.

Authority: docs.delta.io, "Concurrency control"
"""

from delta import exceptions as refused


class Overtaken(Exception):
    """Another commit has the version that ours was to have."""


COMMIT_CONFLICTS = (
    Overtaken,
    refused.ConcurrentAppendException,
    refused.ConcurrentDeleteDeleteException,
    refused.ConcurrentDeleteReadException,
    refused.ConcurrentTransactionException,
    refused.ConcurrentWriteException,
    refused.DeltaConcurrentModificationException,
    refused.MetadataChangedException,
    refused.ProtocolChangedException,
)
