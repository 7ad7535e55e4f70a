"""Masks through chains of changes that capture does not see one by one: no value of a masked column is recorded.

While capture is stopped, columns and tables exchange their names, are dropped and made again. Every value that a masked
column gets, or that is written under a masked name, has `zzclear` in it.
"""

from pathlib import Path

import pytest

from tests.postgres.test_masking import Site, hashed, leaks

pytestmark = pytest.mark.pg

SETTINGS = """
[mask]
secret = "{secret}"

[mask.columns]
"public.*.secret" = "hash"
"public.*.phone" = "keep_last 4"
"""
PLAIN = "create table {t} (id int primary key, secret text, amount text)"
ROW = "insert into {t} values (1, 'zzclear0', 'shown')"
HIDE = ("alter table {t} drop amount; alter table {t} rename secret to amount", "update {t} set amount = 'zzclear1'")
SWAP = """
    alter table {t} rename secret to x; alter table {t} rename amount to secret; alter table {t} rename x to amount
"""
CHAINS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "two_names": ((PLAIN, ROW), (*HIDE, "insert into {t} values (2, 'zzclear2')", "alter table {t} drop amount")),
    "swap": ((PLAIN, ROW), (SWAP, "update {t} set secret = 'zzclear1', amount = 'zzclear2'")),
    "swap_back": (
        (PLAIN, ROW),
        (SWAP, "update {t} set secret = 'zzclear1'", SWAP.replace(" x", " y"), "update {t} set id = 2"),
    ),
    "rotated": (
        (PLAIN, ROW),
        (
            "alter table {t} rename secret to x; alter table {t} add secret text",
            "update {t} set x = 'zzclear1', secret = 'zzclear2'",
            "alter table {t} drop amount; alter table {t} rename x to amount; alter table {t} rename secret to x",
            "update {t} set amount = 'zzclear3', x = 'zzclear4'",
            "alter table {t} drop x",
            "update {t} set amount = 'zzclear5'",
        ),
    ),
    "again": (
        (PLAIN.replace(", amount text", ""), "insert into {t} values (1, 'zzclear0')"),
        (
            "alter table {t} drop secret; alter table {t} add secret text",
            "update {t} set secret = 'zzclear1'",
            "alter table {t} rename secret to payer",
            "update {t} set payer = 'zzclear2'",
            "alter table {t} drop payer; alter table {t} add payer text",
            "update {t} set payer = 'shown'",
        ),
    ),
    "in_its_place": (
        (PLAIN, ROW),
        (
            "alter table {t} rename secret to note; alter table {t} drop amount",
            "update {t} set note = 'zzclear1'",
            "alter table {t} drop note; alter table {t} add note text",
            "update {t} set note = 'shown'",
        ),
    ),
    "of_another_type": (
        (PLAIN.replace("amount text", "amount int"), "insert into {t} values (1, 'zzclear0', 5)"),
        (
            "alter table {t} alter secret type varchar(20), drop amount",
            "alter table {t} rename secret to amount",
            "update {t} set amount = 'zzclear1'",
            "alter table {t} alter amount type char(30)",
            "update {t} set amount = 'zzclear2'",
            "alter table {t} drop amount; alter table {t} add amount int",
        ),
    ),
    "key": (
        ("create table {t} (secret text primary key, amount text)", "insert into {t} values ('zzclear0', 'shown')"),
        (
            *HIDE,
            "alter table {t} add other int default 5",
            "update {t} set amount = 'zzclear2'",
            "alter table {t} drop amount; alter table {t} add primary key (other)",
            "delete from {t}",
        ),
    ),
    "whole_rows": (
        (PLAIN, "alter table {t} replica identity full", ROW),
        (*HIDE, "delete from {t}", "alter table {t} drop amount"),
    ),
    "keyless": (
        ("create table {t} (secret text, amount text)", "alter table {t} replica identity full"),
        (
            "insert into {t} values ('zzclear0', 'shown')",
            *HIDE,
            "delete from {t}",
            "alter table {t} add secret text; alter table {t} drop amount",
        ),
    ),
    "partitioned": (
        (f"{PLAIN} partition by list (id)", "create table {t}_1 partition of {t} for values in (1)", ROW),
        (
            *HIDE,
            "create table {t}_2 partition of {t} for values in (2)",
            "insert into {t} values (2, 'zzclear2')",
            "alter table {t} drop amount",
        ),
    ),
    "inherited": (
        (PLAIN, ROW, "create table {t}_child (primary key (id), other text) inherits ({t})"),
        (
            "insert into {t}_child values (7, 'zzclear0', 'shown', 'shown')",
            *HIDE,
            "alter table {t}_child drop other; alter table {t} drop amount",
        ),
    ),
    "renamed_table": (
        (PLAIN, ROW),
        (
            "alter table {t} rename to {t}_old",
            PLAIN,
            *(each.format(t="{t}_old") for each in HIDE),
            "insert into {t} values (5, 'zzclear5', 'shown')",
            "alter table {t}_old drop amount",
        ),
    ),
    "swapped_tables": (
        (PLAIN, ROW, "create table {t}_2 (id int primary key, note text)", "insert into {t}_2 values (1, 'shown')"),
        (
            "alter table {t} rename to {t}_3; alter table {t}_2 rename to {t}; alter table {t}_3 rename to {t}_2",
            "alter table {t} rename note to secret; alter table {t}_2 rename secret to note",
            "update {t} set secret = 'zzclear1'",
            "update {t}_2 set note = 'zzclear2'",
            "alter table {t} rename to {t}_3; alter table {t}_2 rename to {t}; alter table {t}_3 rename to {t}_2",
            "alter table {t}_2 rename secret to note",
            "update {t}_2 set id = 2",
            "update {t} set id = 2",
        ),
    ),
    "two_rules": (
        (f"{PLAIN[:-1]}, phone text)", "insert into {t} values (1, 'zzclear0', 'shown', 'zzclear1234')"),
        (
            "alter table {t} drop phone; alter table {t} rename secret to phone",
            "update {t} set phone = 'xxxxxx-zzclear'",
            "alter table {t} drop phone; alter table {t} add phone text",
        ),
    ),
    "dropped_table": ((PLAIN, ROW), (*HIDE, "drop table {t}")),
}
ORDINARY = (
    ("alter table plain drop early, add late text", "update plain set late = 'shown0'"),
    ("alter table plain add note text default 'new'", "update plain set note = 'shown1'"),
    ("alter table plain drop amount", "insert into plain (id, secret, note) values (2, 'zzclear1', 'shown2')"),
    ("alter table plain rename secret to payer", "update plain set payer = 'zzclear2' where id = 1"),
    ("alter table plain drop note, add other text", "update plain set other = 'shown3' where id = 1"),
)


def check_chains(database: str, folder: Path, *, trigger: bool) -> None:
    """Run every chain while capture is stopped, in a table of its own; what capture sees one by one parks no table."""
    site = Site(database, folder)
    site.configure(SETTINGS)
    plain = PLAIN.replace("secret", "early text, secret"), "insert into plain values (1, 'shown', 'zzclear0', 'shown')"
    tables = {"plain": plain, **{name: made for name, (made, _) in CHAINS.items()}}
    site.execute(*(each.format(t=name) for name, made in tables.items() for each in made))
    site.well("bootstrap")
    if trigger:
        site.well("check", "--install-ddl-trigger", "--yes")
        site.well("capture", "--until-current")
    for change in ORDINARY:
        site.execute(*change)
        site.well("capture", "--until-current")
    site.execute(*(each.format(t=name) for name, (_, chain) in CHAINS.items() for each in chain))
    site.well("capture", "--until-current")
    assert not list(leaks(site.lake))
    assert site.rows("select * from public.plain order by id") == [
        {"id": 1, "payer": hashed("zzclear2"), "late": "shown0", "other": "shown3"},
        {"id": 2, "payer": hashed("zzclear1"), "late": None, "other": None},
    ]


@pytest.mark.parametrize("trigger", [False, True])
def test_no_chain_of_changes_shows_a_value(database: str, tmp_path: Path, *, trigger: bool) -> None:
    """In a published table, under any of its names; ordinary changes of columns park no table."""
    check_chains(database, tmp_path, trigger=trigger)


def test_a_table_whose_columns_were_not_known_is_followed_again(database: str, tmp_path: Path) -> None:
    """By follow itself, in a new snapshot, as no column may have had a masked name; the next rows are known."""
    site = Site(database, tmp_path)
    site.configure(SETTINGS)
    site.execute(PLAIN.format(t="t"), ROW.format(t="t"), "create table other (id int primary key, phone text)")
    site.well("bootstrap")
    site.execute("update t set amount = 'shown1'")
    site.well("capture", "--until-current")
    site.execute(*(each.format(t="t") for each in HIDE), "alter table t drop amount, add late text")
    said = site.run("follow", "--until-current")
    assert (said.code, "which columns these are is not known" in said.stderr) == (0, True), said.stderr
    site.execute("insert into t values (2, 'shown2')")
    site.well("follow", "--until-current")
    assert site.rows("select * from public.t order by id") == [{"id": 1, "late": None}, {"id": 2, "late": "shown2"}]
    assert not list(leaks(site.lake))
