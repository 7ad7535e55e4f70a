"""Tables of every kind for which the fold has a rule, and the ledger that their triggers write.

The ledger has every change of every row, complete, with its transaction and in its order. PostgreSQL writes it in the
same transaction, so exactly the committed changes are in it.
"""

import json
from decimal import Decimal
from typing import Any

TABLES = ("accounts", "bags", "long_keys", "notes", "orders", "parts", "retyped")
LEAVES = ("parts_one", "parts_rest")
LEDGER = "ledger"

_TABLES = """
create table accounts (id int primary key, owner text, balance numeric(12,2), open boolean);
create table orders (id bigint, line int, item text, price numeric(10,2), primary key (id, line));
create table notes (id int primary key, title text, body text);
alter table notes alter column body set storage external;
create table long_keys (name text primary key, n int);
alter table long_keys alter column name set storage external;
create table bags (label text, n int, body text);
alter table bags replica identity full;
alter table bags alter column body set storage external;
create table parts (region int, id int, label text, primary key (region, id)) partition by list (region);
create table parts_one partition of parts for values in (1);
create table parts_rest partition of parts default;
create table retyped (id int primary key, amount int);
create table ledger (n bigint generated always as identity primary key, xid bigint, tab text, op text, old jsonb,
                     new jsonb);
create function note_change() returns trigger language plpgsql as $$
begin
  insert into public.ledger (xid, tab, op, old, new) values (
    pg_current_xact_id()::text::bigint, tg_argv[0], lower(tg_op),
    case when tg_op in ('UPDATE', 'DELETE') then to_jsonb(old) end,
    case when tg_op in ('INSERT', 'UPDATE') then to_jsonb(new) end);
  return null;
end $$;
"""
_TRIGGERS = """
create trigger counted after insert or update or delete on {0} for each row execute function note_change('{0}');
create trigger emptied after truncate on {0} for each statement execute function note_change('{0}');
"""
_ROWS = """
insert into accounts select n, 'owner ' || n, n, n % 2 = 0 from generate_series(0, 400) n;
insert into orders select n, 1, 'item', n from generate_series(0, 400) n;
insert into notes select n, 'title', repeat(md5(n::text), 90) from generate_series(0, 40) n;
insert into bags select 'bag ' || n % 5, n % 2, null from generate_series(0, 60) n;
insert into retyped select n, n from generate_series(0, 20) n;
insert into parts select n % 3, n, 'part' from generate_series(0, 90) n;
"""

RETYPED = "retyped"
RETYPE = "alter table retyped alter column amount type text"
"""Changes a type so that the old and the new values cannot share a column: the table must be parked."""

EMPTY = _TABLES + "".join(_TRIGGERS.format(table) for table in TABLES)
DDL = EMPTY + _ROWS


def texts(row: str, columns: list[str]) -> tuple[str | None, ...]:
    """Format a row of the ledger as PostgreSQL prints its values."""
    values: dict[str, Any] = json.loads(row, parse_float=Decimal)
    return tuple(_text(values[column]) for column in columns)


def _text(value: Decimal | int | str | None) -> str | None:
    if isinstance(value, bool):
        return "t" if value else "f"
    return None if value is None else str(value)
