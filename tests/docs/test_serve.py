"""docs/serve.md: every address of the JSON API answers, and the options of the table are those of the command."""

import re
from pathlib import Path

import click
import pytest

from auditlake.cli.main import auditlake
from tests.page import HOST, Page, write_lake

_TEXT = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
_ADDRESSES = re.findall(rf"^\$ curl 'http://{re.escape(HOST)}([^']+)'$", _TEXT, re.MULTILINE)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of the small lake, which has the tables and LSNs of the document."""
    return Page(write_lake(tmp_path_factory.mktemp("docs") / "lake"))


@pytest.mark.parametrize("address", _ADDRESSES)
def test_the_addresses_answer(page: Page, address: str) -> None:
    """Each is asked as it is written."""
    response = page.ask("GET", address)
    assert response.status_code == 200, response.text
    assert response.content


def test_the_endpoints_are_those_of_the_document(page: Page) -> None:
    """The table names every path of the OpenAPI document, and the streams and downloads besides."""
    section = _TEXT.split("| endpoint | returns |")[1].split("\n\n")[0]
    named = {name for line in section.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    described = {path.rsplit("/", 1)[1] for path in page.get("/api/openapi.json").json()["paths"]}
    assert named == described | {"export", "undo", "changes"}


def test_the_options_are_those_of_the_command() -> None:
    """Every option of its own is in the table."""
    own = {
        "listen",
        "token_file",
        "behind_proxy",
        "proxies",
        "users_file",
        "access_log",
        "names",
        "timeout_s",
        "export_rows",
    }
    options = {each.opts[0] for each in auditlake.commands["serve"].params if each.name in own}
    assert isinstance(auditlake.commands["serve"], click.Command)
    assert options == set(re.findall(r"^\| `(--[a-z-]+)", _TEXT, re.MULTILINE))
