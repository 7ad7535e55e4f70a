"""How PostgreSQL's own tests are read: statements in Perl, and places in SQL at which psql can wait."""

import pytest

from tests.torture.postgres_suites import statements, with_pauses

SENT = {
    "$node_publisher->safe_psql('postgres', 'select 1');": ["select 1"],
    '$node_publisher->safe_psql(\n\t\'postgres\', "select \\"a\\", \\$1");': ['select "a", $1'],
    "$node_A->safe_psql('postgres', qq(insert into t values (f(1));));": ["insert into t values (f(1));"],
    "my $ddl = q{create table t ()};\n$node_publisher->safe_psql('postgres', $ddl . ';');": ["create table t ();"],
    "$node_publisher->safe_psql('postgres', \"select $known_only_at_run_time\");": [],
    "$node_subscriber->safe_psql('postgres', 'select 2');": [],
    """
sub changes
{
	$node_publisher->safe_psql('postgres', 'insert');
}
$node_publisher->safe_psql('postgres', 'create');
changes($node_publisher);
""": ["create", "insert"],
}
WAITS = {
    "after the tables of a group": (
        "create table a ();\ncreate table b ();\ninsert into a default values;\nselect 1;\n",
        "create table a ();\ncreate table b ();\n-- wait\ninsert into a default values;\nselect 1;\n",
    ),
    "not in a transaction": (
        "begin;\ncreate table a ();\nselect 1;\ncommit;\nselect 2;\n",
        "begin;\ncreate table a ();\nselect 1;\ncommit;\n-- wait\nselect 2;\n",
    ),
    "not in a statement, a quoted text or rows": (
        "create table a (\n  n int);\ncopy a from stdin;\n1\n\\.\nselect 'x;\ny';\n",
        "create table a (\n  n int);\n-- wait\ncopy a from stdin;\n1\n\\.\nselect 'x;\ny';\n",
    ),
    "only so often": (
        "create table a ();\nselect 1;\ncreate table b ();\nselect 2;\n",
        "create table a ();\n-- wait\nselect 1;\ncreate table b ();\nselect 2;\n",
    ),
}


@pytest.mark.parametrize("perl", SENT)
def test_what_a_publisher_is_sent_is_read(perl: str) -> None:
    """Strings in each of Perl's forms, variables and both concatenated."""
    assert list(statements(perl)) == SENT[perl]


@pytest.mark.parametrize("place", WAITS)
def test_psql_waits_where_tables_were_created(place: str) -> None:
    """The line is inserted where psql reads a command."""
    text, expected = WAITS[place]
    assert with_pauses(text, "-- wait", 1) == expected
