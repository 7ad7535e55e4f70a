"""Evidence: a page saved as one HTML file, with its question, the lake and the commit.

The file loads nothing and runs nothing: the style is part of it, links are text, forms are gone, long values are
unfolded. With a ledger it names the tree over everything sealed when it was written, with which a digest that was kept
elsewhere is compared, and has the proof of a row or a transaction as `auditlake prove` writes it. That of a row covers
its whole life; both name changes of every table of a transaction, so only a user who may see all gets them.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from urllib.parse import urlencode

from markupsafe import Markup

from auditlake.audit.bounds import ANSWER_CHARACTERS
from auditlake.errors import NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.ledger.blocks import Block, read_last_block
from auditlake.ledger.prove import ProofTarget, proofs_of
from auditlake.serve import models

PARAMETER = "_evidence"
PATHS = ("/row", "/transaction", "/compare")


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of the file; `facts` are names and values in order."""

    name: str
    facts: Mapping[str, str]
    style: Markup
    proof: str | None


def evidence(
    lake: Lake, path: str, query: list[tuple[str, str]], at: models.MomentJson, target: ProofTarget | str
) -> _Head:
    """Describe the answer of a page; raises LakeUnusable.

    `target` is the row or transaction to prove, or the reason why there is no proof.
    """
    manifest, now, last = require_manifest(lake), datetime.now(UTC), read_last_block(lake)
    facts = {
        "Question": f"{path}?{urlencode([*query, ('at', at.lsn)])}",
        "As of": f"{at.lsn}, {at.time or 'before the first commit'}, commit {at.commit} of {at.commits}",
        "Database": f"{manifest.database} of the server {manifest.system_identifier}, timeline {manifest.timeline}",
        "Written": f"{now.isoformat(timespec='seconds')} by auditlake {version('auditlake')}",
        "Ledger": _ledger(last),
    }
    reason, proof = ("", None) if last is None else _proof(lake, target)
    if reason:
        facts["Proof"] = reason
    style = (files("auditlake.serve") / "static" / "app.css").read_text("utf-8")
    name = f"{path.strip('/')}-{at.lsn.replace('/', '-')}-{now:%Y%m%dT%H%M%SZ}.html"
    return _Head(name, facts, Markup(style), proof)  # noqa: S704 - our own file


def _proof(lake: Lake, target: ProofTarget | str) -> tuple[str, str | None]:
    """Return a sentence about the proof, and the proof as JSON."""
    if isinstance(target, str):
        return target, None
    try:
        text = json.dumps(proofs_of(lake, target, None))
    except NotAnswerable as exc:
        return f"none: {exc.message}", None
    if len(text) > ANSWER_CHARACTERS:
        return f"left out, because it has {len(text):,} characters: auditlake prove writes it", None
    return "at the end of this file, to the tree above", text


def unlinked(*_: object, **__: object) -> str:
    """Return the target of every link: a file that is kept leads nowhere."""
    return "#"


def unfolded(body: str) -> Markup:
    """Open every folded value of a page's HTML, whose values are escaped."""
    return Markup(body.replace('<details class="long">', '<details class="long" open>'))  # noqa: S704 - rendered


def _ledger(last: Block | None) -> str:
    if last is None:
        return "none: nothing shows whether this lake was changed"
    root = b64encode(last.tree.root).decode()
    return f"sealed up to {last.upto.commit}; {last.origin}, size {last.tree.size}, root {root}"
