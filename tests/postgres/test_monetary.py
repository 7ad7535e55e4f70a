"""A server with another lc_monetary: its format of money must not reach our values.

Most machines have no locale but C. localedef compiles one here, with the relevant category only.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest

from tests.roads import both_roads
from tests.server import Server, chosen_version

pytestmark = pytest.mark.pg

_ODD = """
LC_MONETARY
int_curr_symbol "EUR "
currency_symbol "E"
mon_decimal_point ","
mon_thousands_sep "."
mon_grouping 3;3
positive_sign ""
negative_sign "~"
int_frac_digits 3
frac_digits 3
p_cs_precedes 0
p_sep_by_space 1
n_cs_precedes 0
n_sep_by_space 1
p_sign_posn 1
n_sign_posn 1
END LC_MONETARY
"""
_MONEY = "(1, 1234567.5), (2, -0.01), (3, 92233720368547.75), (4, null)"


def test_money_does_not_depend_on_the_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshot and stream have money as under `C`, with two decimals, although the server uses three and commas."""
    with tempfile.TemporaryDirectory() as locales:
        make_locale(Path(locales), "odd")
        monkeypatch.setenv("LOCPATH", locales)
        with Server(chosen_version(), settings={"lc_monetary": "odd"}) as server:
            name = server.create_database()
            with psycopg.connect(server.dsn(name), autocommit=True) as conn:
                conn.execute("create table t (id int primary key, price money)")
                assert conn.execute("select (-1234.5)::numeric::money::text").fetchone() == ("~1.234,500 E",)
                conn.execute(f"alter database {name} set lc_monetary = 'odd'".encode())
                conn.execute(f"alter role postgres in database {name} set lc_monetary = 'odd'".encode())
            insert = f"set lc_monetary = 'C'; insert into t select id, cents::numeric::money from (values {_MONEY})"
            copied, streamed = both_roads(server.dsn(name), tmp_path, f"{insert} as v (id, cents)")
            with psycopg.connect(server.dsn(name)) as conn:
                conn.execute("set lc_monetary = 'C'")
                printed = [list(row) for row in conn.execute("select id::text, price::text from t order by id")]
    assert copied == streamed == printed
    assert printed[0] == ["1", "$1,234,567.50"]


def make_locale(folder: Path, name: str) -> None:
    """Compile a locale with another money format that equals POSIX otherwise."""
    folder.chmod(0o755)  # the server runs as another user
    (folder / "source").write_text(_ODD)
    command = ["localedef", "-c", "-i", str(folder / "source"), "-f", "ANSI_X3.4-1968", str(folder / name)]
    # It warns of every category that is not there, and then ends with 1.
    subprocess.run(command, check=False, capture_output=True, env={**os.environ, "LC_ALL": "C"})
    assert (folder / name / "LC_MONETARY").exists()
