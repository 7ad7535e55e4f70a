"""--log-format json: one object a line, with stable names of events, for messages, errors and bugs."""

import json
import re
from pathlib import Path

import pytest

from auditlake.errors import ConfigError
from auditlake.messages import Event, FailureReports, Notice, report, say, use_format
from tests.command import run_here

_DOCUMENT = Path(__file__).parents[2] / "docs" / "monitoring.md"


@pytest.fixture
def as_json() -> object:
    """Write messages as JSON for one test."""
    use_format("json")
    yield
    use_format("text")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """Return the objects on stderr."""
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.usefixtures("as_json")
def test_a_message_is_one_object_with_its_event(capsys: pytest.CaptureFixture[str]) -> None:
    """A line break or a quote in a message does not end the object."""
    say(Notice(Event.SOURCE_LOST, 'gone: "a"\nb'))
    say("anything else")
    lost, other = lines(capsys)
    assert (lost["event"], lost["level"], lost["message"]) == ("source_lost", "warning", 'gone: "a"\nb')
    assert (other["event"], other["level"]) == ("message", "info")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", str(lost["time"]))


@pytest.mark.usefixtures("as_json")
def test_an_error_has_its_hint_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """A bug is told apart, without the text of the exception, which may quote rows."""
    report(ConfigError("no source is set", "give one"))
    report(RuntimeError("a value of a row"))
    FailureReports().report("a look failed", OSError(28, "No space left on device"))
    error, bug, failed = lines(capsys)
    assert (error["event"], error["hint"], error["exit_code"]) == ("error", "give one", 3)
    assert (bug["event"], bug["exit_code"], "a value" in str(bug)) == ("bug", 1, False)
    assert (failed["event"], failed["level"]) == ("attempt_failed", "warning")


def test_text_is_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    """The event does not show."""
    say(Notice(Event.STOPPED, "stopped by SIGTERM"))
    assert capsys.readouterr().err == "auditlake: stopped by SIGTERM\n"


def test_the_option_applies_to_errors_of_the_settings(tmp_path: Path) -> None:
    """A command that cannot start reports that as JSON, too."""
    done = run_here(["status", "--lake", tmp_path / "absent", "--log-format", "json"])
    use_format("text")
    (line,) = done.stderr.splitlines()
    assert (json.loads(line)["event"], json.loads(line)["exit_code"], done.code) == ("error", 6, 6)


def test_every_event_is_documented() -> None:
    """Programs rely on these names."""
    text = _DOCUMENT.read_text()
    assert [event for event in Event if f"`{event}`" not in text] == []
