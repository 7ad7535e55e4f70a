"""Record the messages of real servers for `walk.sql`: `python -m tests.data.pgoutput.record`, from the repository root.

Each version's file is a sequence of payloads, each after its size in four bytes, big endian. The bytes contain LSNs,
OIDs and times of that run, so a new recording differs from the old one; `walk.json` is valid for both.
"""

import struct
import subprocess
import sys
from pathlib import Path

import psycopg

from tests.server import Server

FOLDER = Path(__file__).parent
VERSIONS = (16, 18)
_MESSAGES = """
    select data from pg_logical_slot_get_binary_changes(
        's', null, null, 'proto_version', '1', 'publication_names', 'p', 'messages', 'true')
"""


def record(version: int) -> Path:
    """Run the statements on a server of this version and write its slot's messages to a file."""
    with Server(version) as server:
        dsn = server.dsn(server.create_database())
        psql = [f"{server.bin}/psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", f"{FOLDER}/walk.sql", dsn]
        subprocess.run(psql, check=True, stdout=subprocess.DEVNULL)
        with psycopg.connect(dsn, autocommit=True) as connection:
            payloads = [data for (data,) in connection.execute(_MESSAGES)]
            connection.execute("select pg_drop_replication_slot('s')")
    path = FOLDER / f"walk.pg{version}.bin"
    path.write_bytes(b"".join(struct.pack(">I", len(payload)) + payload for payload in payloads))
    return path


if __name__ == "__main__":
    for each in VERSIONS:
        sys.stdout.write(f"{record(each)}\n")
