"""The tests of the store, and every command with `kill -9` in between, on a second server of the S3 protocol.

versitygw shares no code with moto, which all other tests use. It keeps objects as files.
"""

from collections.abc import Iterator

import pytest

from tests.release.test_object_store import test_every_command_works_on_a_bucket_and_survives_kills  # noqa: F401
from tests.s3_server import s3_server
from tests.unit.store.test_object_store import *  # noqa: F403 - every test of the store

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The URL of a bucket of the second server."""
    with s3_server("versitygw") as url:
        yield url
