"""Fixtures of the tests that only a release runs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from selenium import webdriver

from auditlake.store.place import parse_url
from tests.browser import started
from tests.interleaved import Site
from tests.server import Server

MakeSite = Callable[[], Site]


@pytest.fixture(scope="module", params=[16, 18])
def of_version(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each version of the demo's."""
    with Server(request.param) as running:
        yield running


@pytest.fixture
def database_of_version(of_version: Server) -> Iterator[str]:
    """Connection string of a fresh database there; it goes with the test, and its slot, which the next one needs."""
    name = of_version.create_database()
    yield of_version.dsn(name)
    of_version.drop_database(name)


@pytest.fixture(scope="module", params=["disk", "s3"])
def make_site(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MakeSite]:
    """A function that makes a lake to which two processes write, in each store."""
    databases: list[str] = []

    def drop() -> None:
        while databases:
            server.drop_database(databases.pop())

    def make() -> Site:
        drop()  # the lake of a test that failed: both would have a slot of the same name
        databases.append(server.create_database())
        place = tmp_path_factory.mktemp("interleaved") / "lake"
        if request.param == "s3":
            place = cast("Path", parse_url(f"{request.getfixturevalue('bucket')}/{uuid4().hex}"))
        return Site(server.dsn(databases[-1]), place)

    yield make
    drop()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Headless Chromium."""
    with started(tmp_path_factory.mktemp("downloads")) as found:
        yield found


@pytest.fixture(scope="module")
def sites(make_site: MakeSite) -> list[Site]:  # noqa: ARG001 - begins anew with each store
    """The lakes made for the tests of a module on one store."""
    return []


@pytest.fixture
def site(make_site: MakeSite, sites: list[Site]) -> Site:
    """A lake with unapplied changes: that of the test before, unless it failed."""
    if not sites or not sites[-1].is_checked:
        sites.append(make_site())
    sites[-1].begin()
    return sites[-1]
