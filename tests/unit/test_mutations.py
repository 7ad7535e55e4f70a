"""The mutations fit the source: otherwise a campaign over them would prove nothing, and end late."""

from pathlib import Path

import pytest

import auditlake
from tests.torture.rules import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_fits_the_source(mutation: Mutation) -> None:
    """What it replaces stands in its file exactly once when its turn comes, and the file still compiles afterwards."""
    texts: dict[str, str] = {}
    for file, old, new in mutation.changes:
        text = texts.get(file) or (Path(auditlake.__file__).parent / file).read_text()
        assert text.count(old) == 1, f"{file}: {old}"
        texts[file] = text.replace(old, new)
    for file, text in texts.items():
        compile(text, file, "exec")


def test_no_two_mutations_have_one_name() -> None:
    """A mutation is asked for by its name."""
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
