"""Sources over TLS: captured changes, verification of the server, and authentication."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from auditlake.errors import SourceUnreachable
from auditlake.source.connection import connect, connect_replication
from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.tls import BY_CERTIFICATE, TlsServer, tls_server

pytestmark = pytest.mark.pg


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """A server that accepts only TLS."""
    with tls_server(tmp_path_factory.mktemp("tls")) as running:
        yield running


def test_capture_over_tls_holds_the_same_changes(tls: TlsServer, tmp_path: Path) -> None:
    """Small and large values, with SCRAM channel binding, and by client certificate."""
    name = tls.server.create_database()
    plain = tls.server.dsn(name)
    with psycopg.connect(plain, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, v text)")
    lakes = {
        tls.dsn(name, channel_binding="require"): make_lake(plain, tmp_path / "scram", name="scram"),
        tls.dsn_by_certificate(name): make_lake(plain, tmp_path / "certificate", name="certificate"),
        plain: make_lake(plain, tmp_path / "plain", name="plain"),
    }
    with psycopg.connect(plain, autocommit=True) as conn:
        conn.execute("insert into t select n, n from generate_series(1, 5000) n")
        conn.execute("insert into t values (0, repeat('large', 400000))")
        conn.execute("delete from t where id < 10")
    for dsn, lake in lakes.items():
        capture(dsn, lake)
    found = [oracle.changes(lake) for lake in lakes.values()]
    assert len(found[0]) == 5011
    assert found[0] == found[2]
    assert found[1] == found[2]


@pytest.mark.parametrize("open_connection", [connect, connect_replication])
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sslrootcert": "system"}, ["certificate verify failed", "sslrootcert"]),
        ({"host": "localhost"}, ["does not match host name", "sslmode", "host name"]),
        ({"sslmode": "disable"}, ["no encryption", "sslmode"]),
        ({"user": BY_CERTIFICATE}, ["certificate", "sslcert"]),
    ],
)
def test_a_refusal_of_tls_is_final_and_names_what_to_change(
    tls: TlsServer, open_connection: Callable[[str], object], changed: dict[str, str], words: list[str]
) -> None:
    """A retry cannot succeed."""
    with pytest.raises(SourceUnreachable) as refused:
        open_connection(tls.dsn("postgres", **changed))
    assert not refused.value.retryable
    said = f"{refused.value.message} {refused.value.hint}"
    assert [word for word in words if word not in said] == []
