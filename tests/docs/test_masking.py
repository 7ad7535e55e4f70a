"""The settings and the script of masking.md are valid, and mean what the text says."""

import re
import subprocess
import sys
from pathlib import Path

from auditlake.config import load_settings
from auditlake.relation import TableName
from auditlake.settings.mask_rules import parse_rule
from auditlake.values.masks import ColumnMask

_TEXT = (Path(__file__).parents[2] / "docs" / "masking.md").read_text()
_KEY = "/etc/auditlake/mask.key"


def _block(language: str, key: Path) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", _TEXT, re.DOTALL)
    return str(block).replace(_KEY, str(key))


def test_the_settings_are_valid(tmp_path: Path) -> None:
    """The first pattern that matches decides: an address is hashed, and the rest of the strict table is kept."""
    key, file = tmp_path / "mask.key", tmp_path / "auditlake.toml"
    key.write_text("0123456789abcdef\n")
    file.write_text(_block("toml", key))
    rules = load_settings(file).masking
    customers = TableName("public", "customers")
    found = {name: str(rules.rule_of(customers, name)) for name in ("email", "phone", "zip", "born", "id")}
    assert found == {"email": "hash", "phone": "keep_last 4", "zip": "truncate 2", "born": "null", "id": "keep"}
    assert rules.is_strict([customers])
    assert rules.secret == b"0123456789abcdef"


def test_the_script_computes_a_hash(tmp_path: Path) -> None:
    """As capture does."""
    key = tmp_path / "mask.key"
    key.write_text("0123456789abcdef\n")
    done = subprocess.run([sys.executable, "-c", _block("python", key)], capture_output=True, text=True, check=True)
    expected = ColumnMask(parse_rule("hash"), 25, b"0123456789abcdef").text("me@example.org")
    assert done.stdout.strip() == expected
