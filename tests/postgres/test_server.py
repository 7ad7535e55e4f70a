"""The embedded server: socket and TCP, logical replication, and crash recovery."""

import psycopg
import pytest

from tests.server import Server

pytestmark = pytest.mark.pg


@pytest.mark.parametrize("tcp", [False, True])
def test_socket_and_tcp_reach_the_same_server(server: Server, *, tcp: bool) -> None:
    """Both have the requested version."""
    with psycopg.connect(server.dsn(tcp=tcp)) as connection:
        assert connection.info.server_version // 10_000 == server.version
        assert connection.execute("show wal_level").fetchone() == ("logical",)


def test_a_wrong_password_by_tcp_is_refused(server: Server) -> None:
    """TCP requires the password."""
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.dsn(tcp=True), password="wrong")


def test_a_crash_loses_no_commit(server: Server, database: str) -> None:
    """After an immediate stop the connection string stays valid."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table t (id int primary key)")
        connection.execute("insert into t values (1)")
    server.restart("immediate")
    with psycopg.connect(database) as connection:
        assert connection.execute("select id from t").fetchall() == [(1,)]


def test_a_database_is_dropped_with_its_slots(server: Server) -> None:
    """A slot would retain its database and WAL."""
    name = server.create_database()
    with psycopg.connect(server.dsn(name), autocommit=True) as connection:
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [f"slot_of_{name}"])
    server.drop_database(name)
    with psycopg.connect(server.dsn()) as connection:
        assert connection.execute("select from pg_database where datname = %s", [name]).fetchall() == []
        assert connection.execute("select from pg_replication_slots where database = %s", [name]).fetchall() == []
