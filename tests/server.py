"""The PostgreSQL under the tests: the class the demo uses, in the version AUDITLAKE_TEST_PG names (18 or 16)."""

import os

from auditlake.demo.server import PASSWORD, SUPERUSER, Server, StopMode

__all__ = ["PASSWORD", "SUPERUSER", "Server", "StopMode", "chosen_version"]


def chosen_version() -> int:
    """The major version to test against."""
    return int(os.environ.get("AUDITLAKE_TEST_PG", "18"))
