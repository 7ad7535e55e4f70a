"""A streaming standby of an embedded server, as PostgreSQL's own tools make one."""

from contextlib import closing
from typing import Any

import psycopg

from tests.server import Server

SLOT = "standby"


class Standby(Server):
    """A standby of `primary` with a physical slot there; `copy_slot` synchronizes the failover slots."""

    def __init__(self, primary: Server, database: str) -> None:
        self._upstream = primary.dsn(database)
        settings = {
            "hot_standby_feedback": "on",
            "primary_slot_name": SLOT,
            "primary_conninfo": self._upstream,
        }
        super().__init__(primary.version, settings=settings)

    def _create(self) -> None:
        with closing(psycopg.connect(self._upstream, autocommit=True)) as conn:
            conn.execute("select pg_create_physical_replication_slot(%s, true)", [SLOT])
        if self._user is not None:
            self._hand_over(self._user)
        self._run("pg_basebackup", "-D", self.data, "-d", self._upstream, "-S", SLOT, "-c", "fast", "-R", "--no-sync")
        (self.data / "postgresql.auto.conf").write_text("")  # the password-free address of a socket is in ours
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def copy_slot(self, database: str, slot: str) -> bool:
        """Synchronize the failover slots; return whether this one would now survive a promotion."""
        query = "select synced and not temporary from pg_replication_slots where slot_name = %s"
        with psycopg.connect(self.dsn(database), autocommit=True) as here, psycopg.connect(self._upstream) as there:
            there.execute("select pg_log_standby_snapshot()")
            there.commit()
            try:
                here.execute("select pg_sync_replication_slots()")
            except psycopg.errors.ObjectNotInPrerequisiteState:  # the slot is ahead of what the standby has received
                return False
            row: tuple[Any, ...] | None = here.execute(query, [slot]).fetchone()
        return row is not None and bool(row[0])

    def promote(self) -> None:
        """Promote the standby, and wait for it."""
        with psycopg.connect(self.dsn(), autocommit=True) as conn:
            conn.execute("select pg_promote()")
