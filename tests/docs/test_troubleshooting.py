"""troubleshooting.md names every kind of error and every cause of parking, and quotes only messages of the code."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import auditlake.apply.errors
import auditlake.query.lexical
import auditlake.serve.resources
import auditlake.settings.streaming_mode
import auditlake.source.lock_waits  # noqa: F401  # defines a class of errors, as the four above
from auditlake.errors import AuditlakeError
from auditlake.lake.gaps import UNKNOWN_SHAPE
from auditlake.lake.parking import Cause
from tests.docs.raised import HOLE, Sources, read_sources

pytestmark = pytest.mark.xdist_group("troubleshooting")  # parsing the package takes seconds

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "troubleshooting.md").read_text()
_QUOTED_COMPLETELY = {"SourceUnreachable", "SourceRefuses", "SourceAway", "WrongSource", "LakeConflict"}
"""Classes whose every message is on the page: an operator meets these at night."""


def _classes(base: type[AuditlakeError] = AuditlakeError) -> Iterator[type[AuditlakeError]]:
    for child in base.__subclasses__():
        yield child
        yield from _classes(child)


@cache
def _sources() -> Sources:
    return read_sources()


def _defined() -> set[str]:
    """Return the names of all classes of errors, found in the sources: also those of modules that nothing imports."""
    return _sources().subclasses("AuditlakeError")


def _messages(name: str) -> set[str]:
    """Return the messages that a class is raised with; those made elsewhere are left out."""
    return {text for text in _sources().texts.get(name, ()) if text.strip(HOLE)}


def _sections() -> dict[str, tuple[int, str]]:
    """Return the exit code and the text of the section of each class."""
    found = {}
    for chapter in re.split(r"^## ", _PAGE, flags=re.MULTILINE)[1:]:
        if (code := re.match(r"Exit code (\d)", chapter)) is None:
            continue
        for section in re.split(r"^### ", chapter, flags=re.MULTILINE)[1:]:
            (name,) = re.findall(r"\(`(\w+)`\)$", section.splitlines()[0])
            found[name] = int(code[1]), section
    return found


def _quoted(section: str) -> list[str]:
    """Return the messages in the first column of a section's table."""
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row)]


def _matches(quoted: str, message: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, quoted.split(HOLE))), message, re.DOTALL) is not None


def test_every_class_of_errors_has_a_section_below_its_exit_code() -> None:
    """Both directions; the classes of the sources are those that Python knows."""
    known = {kind.__name__: kind.exit_code for kind in _classes() if kind.__module__.startswith("auditlake.")}
    assert set(known) == _defined()
    assert {name: code for name, (code, _) in _sections().items()} == known


@pytest.mark.parametrize("name", sorted(_sections()))
def test_every_quoted_message_is_one_of_the_code(name: str) -> None:
    """A message that was reworded must be reworded here, too."""
    for quoted in _quoted(_sections()[name][1]):
        assert any(_matches(quoted, message) for message in _messages(name)), quoted


@pytest.mark.parametrize("name", sorted(_QUOTED_COMPLETELY))
def test_every_message_of_code_4_and_5_and_of_conflicts_is_quoted(name: str) -> None:
    """A new message needs a row with cause, check and fix."""
    quoted = _quoted(_sections()[name][1])
    for message in _messages(name):
        assert any(_matches(each, message) for each in quoted), message


def test_every_cause_of_parking_is_listed() -> None:
    """Both directions; and the reason of a gap in which no row is missing is the one of the code."""
    chapter = _PAGE.split("\n## Parked tables\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", chapter, re.MULTILINE) == [str(cause) for cause in Cause]
    assert UNKNOWN_SHAPE in " ".join(_PAGE.split())
