"""What Delta's Python classes say when another commit came first, in one tuple to catch.

`DeltaConcurrentModificationException` is the base of the others in Scala, and only their sibling in Python: caught
alone it catches none of them.

Authority: docs.delta.io, "Concurrency control"
"""

from delta import exceptions as refused

COMMIT_CONFLICTS = (
    refused.ConcurrentAppendException,
    refused.ConcurrentDeleteDeleteException,
    refused.ConcurrentDeleteReadException,
    refused.ConcurrentTransactionException,
    refused.ConcurrentWriteException,
    refused.DeltaConcurrentModificationException,
    refused.MetadataChangedException,
    refused.ProtocolChangedException,
)
