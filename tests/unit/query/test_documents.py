"""Tests of documents: what is kept of them in memory."""

import pytest

from auditlake.query.postgres.documents import canonical, parsed


@pytest.mark.parametrize(("length", "kept"), [(100, True), (10_000, False)])
def test_long_documents_are_not_kept_in_memory(length: int, kept: bool) -> None:  # noqa: FBT001 - a case
    """Thousands of them would fill it, and would stay in a server after the question."""
    text = f'["{"x" * length}"]'
    for function in (parsed, canonical):
        assert (function(text) is function(text)) == kept
