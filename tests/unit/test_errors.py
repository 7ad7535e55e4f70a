"""Errors carry an exit code and a hint, also across processes."""

import pickle
from unittest import mock

import pytest

from auditlake import errors
from auditlake.cli.main import auditlake
from auditlake.errors import AuditlakeError, SourceAway, SourceRefuses, SourceUnreachable
from tests import command

EXIT_CODES = {
    "BadUsage": 2,
    "ConfigError": 3,
    "SourceUnready": 3,
    "Unsupported": 3,
    "SourceUnreachable": 4,
    "WrongSource": 5,
    "LakeUnusable": 6,
    "LakeConflict": 6,
    "NotAnswerable": 7,
    "DecodeError": 1,
    "InvariantBroken": 1,
}


def test_every_error_has_the_exit_code_the_design_names() -> None:
    """Scripts rely on the codes. Errors of one module alone, such as the page's, are not in the tree."""
    classes = [leaf for leaf in AuditlakeError.__subclasses__() if leaf.__module__ == errors.__name__]
    leaves = {leaf.__name__: leaf.exit_code for leaf in classes}
    assert leaves == EXIT_CODES


def test_a_long_text_is_shortened_in_the_middle() -> None:
    """In message and hint, which may quote what a client has sent."""
    error = AuditlakeError(f"no {'x' * 10_000} here", f"{'y' * 10_000}.")
    assert error.message == f"no {'x' * 1_997} … 6,008 characters … {'x' * 1_995} here" == str(error)
    assert error.hint == f"{'y' * 2_000} … 6,001 characters … {'y' * 1_999}."
    assert AuditlakeError("z" * 4_000).message == "z" * 4_000


@pytest.mark.parametrize("name", EXIT_CODES)
def test_survives_pickling(name: str) -> None:
    """A Spark worker's error arrives with its hint."""
    error: AuditlakeError = getattr(errors, name)("what", "do that.")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert (type(copy), copy.message, copy.hint, str(copy)) == (type(error), "what", "do that.", "what")


def _classes(of: type[AuditlakeError]) -> set[type[AuditlakeError]]:
    return {of}.union(*map(_classes, of.__subclasses__()))


def test_a_class_is_final_or_temporary() -> None:
    """Only a source that is away is temporary, and what a worker sends stays so."""
    assert {each for each in _classes(AuditlakeError) if each.retryable} == _classes(SourceAway)
    for error in (SourceAway("gone"), SourceRefuses("no free WAL sender"), SourceUnreachable("wrong password")):
        assert pickle.loads(pickle.dumps(error)).retryable is isinstance(error, SourceAway)  # noqa: S301 - our own


def test_the_end_of_a_file_is_not_taken_for_an_interruption() -> None:
    """Click raises Abort for both; after an interruption nothing is printed."""
    with mock.patch.object(auditlake.commands["status"], "callback", side_effect=EOFError("marshal data too short")):
        done = command.run_here(["status"])
    assert (done.code, "EOFError" in done.stderr) == (1, True), done
