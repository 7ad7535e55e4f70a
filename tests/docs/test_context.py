"""Snippets of context.md, executed unchanged: `auditlake log` shows the context that they send."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from auditlake.lake.layout import Lake
from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.command import run_here

pytestmark = pytest.mark.pg

_DOCUMENT = (Path(__file__).parents[2] / "docs" / "context.md").read_text()
_SQL = re.findall(r"```sql\n(.*?)```", _DOCUMENT, re.DOTALL)
_DJANGO, _SQLALCHEMY = re.findall(r"```python\n(.*?)```", _DOCUMENT, re.DOTALL)

_RUN_DJANGO = """
import os, django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
given = conninfo_to_dict(os.environ["DSN"])
database = {"ENGINE": "django.db.backends.postgresql", "NAME": given["dbname"], "USER": given["user"],
            "HOST": given["host"], "PORT": given["port"]}
settings.configure(DATABASES={"default": database}, USE_TZ=True)
django.setup()
exec(os.environ["SNIPPET"])
from django.http import HttpResponse
from django.test import RequestFactory

class User:
    def get_username(self):
        return "ann"

def view(request):
    with connection.cursor() as cursor:
        cursor.execute("update orders set status = 'by django' where id = 7")
    return HttpResponse()

request = RequestFactory().post("/orders/7", headers={"X-Reason": "refund 4711"})
request.user = User()
assert audit_middleware(view)(request).status_code == 200
with acting("bob"), connection.cursor() as cursor:
    cursor.execute("update orders set status = 'by bob' where id = 7")
connection.close()
"""

_RUN_SQLALCHEMY = """
import os
exec(os.environ["SNIPPET"])
import psycopg
from sqlalchemy import create_engine
engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(os.environ["DSN"]))
with Session(engine, info={"audit": {"actor": "ann", "reason": "refund 4711"}}) as session:
    session.execute(text("update orders set status = 'by sqlalchemy' where id = 7"))
    session.commit()
    session.execute(text("update orders set status = 'again' where id = 7"))
    session.commit()
with Session(engine) as session:
    session.execute(text("update orders set status = 'nobody' where id = 7"))
    session.commit()
"""


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Lake:
    """Follow a table `orders` with one row."""
    with psycopg.connect(database) as conn:
        conn.execute("create table orders (id int primary key, status text)")
    made = make_lake(database, tmp_path / "lake")
    with psycopg.connect(database) as conn:
        conn.execute("insert into orders values (7, 'placed')")
    return made


def _run(program: str, snippet: str, dsn: str) -> None:
    environment = {**os.environ, "DSN": dsn, "SNIPPET": snippet}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _log(dsn: str, lake: Lake) -> list[dict[str, object]]:
    """Return the transactions of `auditlake log` after the first insert, oldest first."""
    capture(dsn, lake)
    done = run_here(["log", "--json", "--lake", lake.root])
    assert done.code == 0, done.stderr
    return [json.loads(line) for line in reversed(done.stdout.splitlines())][1:]


def test_each_snippet_sets_the_context_of_its_transactions(database: str, lake: Lake) -> None:
    """Plain SQL, Django and SQLAlchemy: each transaction carries its own context, and one without has none."""
    with psycopg.connect(database, autocommit=True) as conn:
        (statements,) = _SQL
        conn.execute(statements.encode())
    _run(_RUN_DJANGO, _DJANGO, database)
    _run(_RUN_SQLALCHEMY, _SQLALCHEMY, database)
    said = [(each["actor"], each["reason"]) for each in _log(database, lake)]
    refund = ("ann", "refund 4711")
    assert [refund, refund, ("bob", None), refund, refund, (None, None)] == said


def test_the_trigger_records_the_session_once_per_transaction(database: str, lake: Lake) -> None:
    """In each transaction that wrote, also after a rollback to a savepoint; apart from the application's context."""
    done = run_here(["check", "--install-context", "--yes", "--source", database])
    assert done.code == 0, done.stderr
    with psycopg.connect(database, application_name="till 3", autocommit=True) as conn:
        with conn.transaction():
            conn.execute("""select pg_logical_emit_message(true, 'auditlake', '{"actor": "ann"}')""")
            conn.execute("update orders set status = 'a'")
            conn.execute("update orders set status = 'b'")
        with conn.transaction():
            with conn.transaction(force_rollback=True):
                conn.execute("update orders set status = 'c'")
            conn.execute("update orders set status = 'd'")
        conn.execute("update orders set status = 'e' where false")
    log = _log(database, lake)
    contexts = [each["context"] for each in log]
    assert all(isinstance(context, dict) for context in contexts)
    observed = [context["db"] for context in contexts if isinstance(context, dict)]
    assert [(db["session_user"], db["application_name"]) for db in observed] == [("postgres", "till 3")] * 2
    assert [each["actor"] for each in log] == ["ann", None]
    messages = [row for row in oracle.changes(lake) if row["prefix"] == "auditlake:db"]
    assert len(observed) == len(messages)
