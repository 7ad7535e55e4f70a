"""What the end of a started stream means, by the messages and SQLSTATEs of PostgreSQL 18."""

import pytest

from auditlake.errors import SourceAway, WrongSource
from auditlake.replication.start import stream_failure
from auditlake.settings.streaming_mode import NotStreamed

_CONTEXT = 'CONTEXT: slot "auditlake", output plugin "pgoutput", in the change callback, associated LSN 0/1B03250'


@pytest.mark.parametrize(
    ("message", "sqlstate", "what", "first"),
    [
        (f'unit "secret" not recognized {_CONTEXT}', "22023", "a row filter of the publication fails", "Publish its"),
        (f"invalid memory alloc request size 1100000003 {_CONTEXT}", "XX000", "size 1100000003", "Delete the row"),
        (f"out of memory {_CONTEXT}", "54000", "a change is larger than the server can send", "Delete the row"),
        ('publication "auditlake" does not exist', "42704", "does not exist", "Run auditlake resync --all."),
    ],
)
def test_what_fails_again_with_each_start_is_final(message: str, sqlstate: str, what: str, first: str) -> None:
    """No value of a row is in it."""
    failure = stream_failure(message, sqlstate, is_streaming=True)
    assert isinstance(failure, WrongSource)
    assert what in failure.message
    assert (failure.hint or "").startswith(first)
    assert "secret" not in f"{failure.message} {failure.hint}"


@pytest.mark.parametrize("is_streaming", [False, True])
@pytest.mark.parametrize(
    ("message", "sqlstate"),
    [
        ("terminating connection due to administrator command", "57P01"),
        ("canceling statement due to user request", "57014"),
        ("out of memory", "53200"),
        ("could not open file", "58P01"),
        ("the server ended the replication stream", None),
    ],
)
def test_what_may_pass_is_tried_again(message: str, sqlstate: str | None, *, is_streaming: bool) -> None:
    """A server that stops, or lacks memory now, sends the change later."""
    assert type(stream_failure(message, sqlstate, is_streaming=is_streaming)) is SourceAway


@pytest.mark.parametrize("sqlstate", ["XX000", "42883"])
def test_what_fails_without_a_known_reason_is_read_without_streaming(sqlstate: str) -> None:
    """If that fails, too, it is tried again, unless it is an error of ours."""
    message = 'could not map filenumber "base/5/16384" to relation OID'
    streamed, plain = (stream_failure(message, sqlstate, is_streaming=each) for each in (True, False))
    assert (type(streamed), plain.retryable) == (NotStreamed, sqlstate == "XX000")
    assert ("drop the slot" in (plain.hint or "")) == plain.retryable
