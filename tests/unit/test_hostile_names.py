"""Names from the source in messages, tables and SQL for people: none commands a terminal or imitates a message."""

import json
from pathlib import Path

import pytest

from auditlake import messages
from auditlake.audit.json_output import line
from auditlake.feed import debezium
from auditlake.feed.change import Change, ChangedTransaction
from auditlake.lake.history import open_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP
from auditlake.lsn import Lsn
from auditlake.pgoutput.attribution import Context
from auditlake.relation import Column, TableName
from auditlake.sql_names import printable_statement
from auditlake.terminal import plain_table, show, show_verdict
from tests.command import run_here
from tests.small_lake import CUSTOMER_COLUMNS, T0_US, version, write_history, write_lake_with_manifest

_HOSTILE = "\x1b]0;x\x07\x9b2J\nauditlake: all is well\u202e"
_SHOWN = "\\u001b]0;x\\u0007\\u009b2J\\nauditlake: all is well\\u202e"


def test_a_message_is_one_line_and_those_indented_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback keeps its lines; a name cannot begin one."""
    messages.say(_HOSTILE)
    messages.say("error at\n  File x")
    assert capsys.readouterr().err == f"auditlake: {_SHOWN}\nauditlake: error at\n  File x\n"


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
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown), ascii(shown)
    assert "\nauditlake: all is well" not in done.stdout + done.stderr
