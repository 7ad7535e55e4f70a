# Everything runs in .venv, which the targets make themselves. `make test ARGS='-k fold'` passes arguments to pytest.
PYTHON_BIN := .venv/bin
ARGS ?=

.PHONY: demo test check setup docs bench clean

demo: setup ## A live database and its history, side by side
	$(PYTHON_BIN)/auditlake demo $(ARGS)

test: setup
	$(PYTHON_BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

check: setup
	$(PYTHON_BIN)/ruff check .
	$(PYTHON_BIN)/ruff format --check .
	$(PYTHON_BIN)/mypy

setup:
	@bash scripts/setup.sh

docs: setup ## Write docs/types.md from the table of types
	$(PYTHON_BIN)/python scripts/types_page.py > docs/types.md

bench: setup
	@for script in bench/*.py; do [ -e "$$script" ] || continue; echo "== $$script"; $(PYTHON_BIN)/python "$$script" || exit 1; done

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis auditlake.egg-info
