"""Names from the source in messages, tables and SQL for people: none commands a terminal or imitates a message."""

import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from mcp.types import TextContent

from auditlake import messages
from auditlake.api.lake import Lake
from auditlake.audit.json_output import line
from auditlake.audit.text_output import show_gap
from auditlake.cancellation import Cancellation
from auditlake.cli.options import confirm
from auditlake.errors import BadUsage
from auditlake.feed import debezium
from auditlake.feed.change import Change, ChangedTransaction
from auditlake.lake.gaps import Gap
from auditlake.lake.history import open_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP
from auditlake.lsn import Lsn
from auditlake.mcp_server import _call as answer_of
from auditlake.pgoutput.attribution import Context
from auditlake.relation import Column, TableName
from auditlake.sql_names import printable_statement
from auditlake.terminal import plain_table, show, show_verdict
from tests.command import run_here
from tests.small_lake import CUSTOMER_COLUMNS, T0_US, version, write_history, write_lake_with_manifest

_HOSTILE = "\x1b]0;x\x07\x9b2J\nauditlake: all is well\n  too\r\x85\u2028\u202e\ufeff\u200b\u061c\U000e0041"
_SHOWN = (
    "\\u001b]0;x\\u0007\\u009b2J\\nauditlake: all is well\\n  too\\r\\u0085\\u2028\\u202e"
    "\\ufeff\\u200b\\u061c\\U000e0041"
)


def test_a_message_is_one_line_and_those_indented_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback keeps its lines; a name begins none, not even an indented one."""
    messages.say(_HOSTILE)
    messages.say(messages.Notice(messages.Event.MESSAGE, _HOSTILE, ("  File x", f"  {_HOSTILE}")))
    messages.report(KeyError("x"))
    first, second, *below = capsys.readouterr().err.removesuffix("\n").split("\n")
    assert (first, second) == (f"auditlake: {_SHOWN}",) * 2
    assert below[:3] == ["  File x", f"  {_SHOWN}", "auditlake: error: unexpected KeyError at"]
    assert below[3].startswith("auditlake: hint: ")


@pytest.mark.parametrize("error", [RuntimeError(), BadUsage(_HOSTILE), FileNotFoundError(2, "gone", _HOSTILE)])
def test_a_failure_that_is_tried_again_is_one_line(capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    """But for the place of a bug, whose lines are ours."""
    with pytest.raises(type(error)) as raised:
        raise error
    messages.FailureReports().report(_HOSTILE, raised.value)
    first, *below = capsys.readouterr().err.removesuffix("\n").split("\n")
    assert first.startswith(f"auditlake: {_SHOWN}: ")
    assert bool(below) == isinstance(error, RuntimeError)
    assert all(line.startswith("  ") for line in below)


def test_a_question_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It names what would be removed."""
    monkeypatch.setattr(sys, "stdin", StringIO())
    with pytest.raises(BadUsage):
        confirm(f"remove {_HOSTILE}?")
    assert _SHOWN in capsys.readouterr().err


def test_tables_and_verdicts_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever made the cells."""
    table = plain_table("name")
    table.add_row(_HOSTILE)
    show(table)
    show_verdict(_HOSTILE, _HOSTILE, well=True)
    assert capsys.readouterr().out.count(_SHOWN) == 3


def test_json_has_no_control_characters_and_the_same_value() -> None:
    """JSON allows those above 7e in a string; a terminal may execute them."""
    text = line({"name": _HOSTILE})
    assert text.isprintable()
    assert json.loads(text) == {"name": _HOSTILE}


def test_a_model_is_shown_every_character_of_an_answer(tmp_path: Path) -> None:
    """A text without a shape could tell a model what its user does not see."""

    def ask() -> dict[str, str]:
        messages.note(_HOSTILE)
        return {"name": _HOSTILE}

    def fail() -> dict[str, str]:
        raise BadUsage(_HOSTILE, _HOSTILE)

    lake = Lake(write_lake_with_manifest(tmp_path / "lake").root)
    answered, failed = (answer_of(lake, each, Cancellation()) for each in (ask, fail))
    text, why = (each.text for done in (answered, failed) for each in done.content if isinstance(each, TextContent))
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == answered.structuredContent == {"name": _HOSTILE, "notes": [_HOSTILE]}
    assert why == f"{_SHOWN}. {_SHOWN}"


def test_a_gap_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Its reason names tables."""
    show_gap(Gap(TableName("public", "t"), Lsn(1), Lsn(2), _HOSTILE, None, None))
    assert capsys.readouterr().out == f"gap 0/1 to 0/2: {_SHOWN}\n"


def test_a_change_in_debezium_s_form_has_no_control_characters() -> None:
    """Of a value, a key and a name of the source; the values are the same."""
    columns, row = (Column(_HOSTILE, 25, -1, key=True),), {_HOSTILE: _HOSTILE}
    change = Change(TableName("public", _HOSTILE), "insert", 0, columns, (_HOSTILE,), None, row)
    committed = ChangedTransaction(Lsn(1), 1, 0, None, Context(), 1, 0, 0, 0, (_HOSTILE,), (change,), "cursor")
    texts = list(debezium.envelopes(committed, _HOSTILE, 0))
    assert all(text.isprintable() for text in texts)
    assert json.loads(texts[1])["after"] == {_HOSTILE: _HOSTILE}


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ('ALTER TABLE "public"."a""\x1b[\n"', 'ALTER TABLE "public".U&"a""\\+00001b[\\+00000a"'),
        ('ALTER TABLE "a\\\x1b"', 'ALTER TABLE U&"a\\+00005c\\+00001b"'),
        ('ALTER TABLE "a\\" ADD b', 'ALTER TABLE "a\\" ADD b'),
        ('create function f() as $$\n"\n"$$', 'create function f() as $$\n"\n"$$'),
        ('ALTER TABLE "a$$\x1b"', 'ALTER TABLE U&"a$$\\+00001b"'),
        ('ALTER TABLE "a$$\n"."$$"', 'ALTER TABLE U&"a$$\\+00000a"."$$"'),
        ('do $$\n"\n$$; grant f to "$$\n"', 'do $$\n"\n$$; grant f to U&"$$\\+00000a"'),
    ],
)
def test_a_statement_for_people_names_the_same_objects(statement: str, shown: str) -> None:
    """In PostgreSQL's own notation, to be copied from a terminal."""
    assert printable_statement(statement) == shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["status", "--json"],
        ["log"],
        ["row", f'public."{_HOSTILE}"', "1"],
        ["blame", f'public."{_HOSTILE}"', "1"],
        ["row", f'public."{_HOSTILE}"', "2"],
        ["row", f"no{_HOSTILE}", "1"],
        ["diff", "0/100", "--stat"],
        ["sql", "--dialect", "spark", f"select * from `no{_HOSTILE}`"],
    ],
    ids=["status", "status as JSON", "log", "row", "blame", "no row", "no table", "diff", "sql"],
)
def test_commands_show_a_table_with_a_hostile_name(tmp_path: Path, arguments: list[str]) -> None:
    """Of a lake, in tables, messages and errors."""
    require_shown(tmp_path / "lake", arguments)


def require_shown(folder: Path, arguments: list[str]) -> None:
    """Ask a lake that has a table with such a name, and require that no sign of the name reaches the terminal."""
    lake = write_lake_with_manifest(folder)
    row = version(0x100, None, "snapshot", None) | {"id": 1, "name": _HOSTILE}
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    name = TableName("public", _HOSTILE)
    write_history(lake, name, CUSTOMER_COLUMNS, [row], positions)
    assert open_history(lake, name) is not None
    done = run_here([*arguments, "--lake", lake.root])
    shown = (done.stdout + done.stderr).replace("\n", "")
    assert not {each for each in _HOSTILE if not each.isprintable()} & set(shown), ascii(shown)
    assert "\nauditlake: all is well" not in done.stdout + done.stderr
    assert "\n  too" not in done.stdout + done.stderr
