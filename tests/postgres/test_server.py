"""The embedded server: usable by socket and TCP, ready for logical replication, and it survives a crash."""

import psycopg
import pytest

from tests.server import Server

pytestmark = pytest.mark.pg


@pytest.mark.parametrize("tcp", [False, True])
def test_takes_connections_by_socket_and_tcp(server: Server, *, tcp: bool) -> None:
    """Both ways reach the same server, in the version that was asked for."""
    with psycopg.connect(server.dsn(tcp=tcp)) as connection:
        assert connection.info.server_version // 10_000 == server.version
        assert connection.execute("show wal_level").fetchone() == ("logical",)


def test_refuses_a_wrong_password_by_tcp(server: Server) -> None:
    """TCP is not trusted."""
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.dsn(tcp=True), password="wrong")


def test_keeps_what_was_committed_before_a_crash(server: Server, database: str) -> None:
    """An immediate stop loses no commit, and the connection string stays good."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table t (id int primary key)")
        connection.execute("insert into t values (1)")
    server.restart("immediate")
    with psycopg.connect(database) as connection:
        assert connection.execute("select id from t").fetchall() == [(1,)]


def test_drops_a_database_with_its_slots(server: Server) -> None:
    """A slot would keep its database, and the log, for ever."""
    name = server.create_database()
    with psycopg.connect(server.dsn(name), autocommit=True) as connection:
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [f"slot_of_{name}"])
    server.drop_database(name)
    with psycopg.connect(server.dsn()) as connection:
        assert connection.execute("select from pg_database where datname = %s", [name]).fetchall() == []
        assert connection.execute("select from pg_replication_slots where database = %s", [name]).fetchall() == []
