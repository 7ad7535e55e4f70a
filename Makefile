# Everything runs in .venv, which the targets make themselves. `make test ARGS='-k fold'` passes arguments to pytest.
PYTHON_BIN := .venv/bin
ARGS ?=
VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0# a second server of the S3 protocol

.PHONY: demo test release torture mutations check packages setup docs man site sbom bench peers peers-page wheel clean

demo: setup ## A live database and its history, side by side
	$(PYTHON_BIN)/auditlake demo $(ARGS)

test: setup
	$(PYTHON_BIN)/python -m pytest -n 4 --dist loadgroup --ignore tests/release $(ARGS)

release: setup ## What a release must pass besides `make test`: longer tests, more servers, more readers
	@$(PYTHON_BIN)/python -m pip install --quiet -e '.[release]'
	@PATH="$$PATH:$$HOME/go/bin"; command -v versitygw >/dev/null || ! command -v go >/dev/null || go install $(VERSITYGW)
	@command -v zsh >/dev/null && command -v fish >/dev/null && command -v mandoc >/dev/null || apt-get install -y -qq --no-install-recommends zsh fish mandoc >&2
	@bash scripts/postgresql14.sh
	@[ -x /usr/lib/postgresql/15/bin/postgres ] || apt-get install -y -qq --no-install-recommends postgresql-15 >&2
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || apt-get install -y -qq --no-install-recommends chromium chromium-driver >&2
	@command -v promtool >/dev/null || apt-get install -y -qq --no-install-recommends prometheus >&2
	@[ -x /usr/sbin/pgbouncer ] || apt-get install -y -qq --no-install-recommends pgbouncer >&2
	@command -v systemd-analyze >/dev/null || apt-get install -y -qq --no-install-recommends systemd >&2
	@command -v podman >/dev/null || apt-get install -y -qq --no-install-recommends podman buildah crun >&2
	@command -v mmdebstrap >/dev/null || apt-get install -y -qq --no-install-recommends mmdebstrap >&2
	$(PYTHON_BIN)/python -m pytest -n 2 --dist loadgroup tests/release $(ARGS)

torture: setup ## Inject faults for SECONDS, then compare the lake with PostgreSQL; SEED repeats a run, STORE=s3 uses a bucket
	$(PYTHON_BIN)/python -m tests.torture.campaign --seconds $(or $(SECONDS),120) --seed '$(SEED)' --store $(or $(STORE),disk)

mutations: setup ## Break each rule on purpose; a check must fail each time (ARGS selects by name)
	$(PYTHON_BIN)/python -m tests.torture.mutations $(ARGS)

check: packages
	$(PYTHON_BIN)/ruff check .
	$(PYTHON_BIN)/ruff format --check .
	$(PYTHON_BIN)/mypy
	$(PYTHON_BIN)/lint-imports --no-cache

packages: # all that `make check` needs
	@bash scripts/setup.sh packages

setup: packages
	@bash scripts/setup.sh

docs: setup ## Write docs/types.md and docs/api.md from the code, and the outputs of docs/asking.ipynb
	$(PYTHON_BIN)/python scripts/types_page.py > docs/types.md
	$(PYTHON_BIN)/python scripts/api_page.py > docs/api.md
	$(PYTHON_BIN)/python scripts/notebook.py

man: setup ## Write man pages of all commands into build/man, from their help texts
	$(PYTHON_BIN)/python scripts/man_pages.py build/man

site: setup ## The documentation with search, in build/site; fails at any warning
	@$(PYTHON_BIN)/python -m pip install --quiet -e '.[docs]'
	$(PYTHON_BIN)/python -m mkdocs build --strict

sbom: setup ## build/auditlake.cdx.json: a bill of materials in CycloneDX's form, with the jars
	@$(PYTHON_BIN)/python -m pip install --quiet -e '.[release]'
	PYTHONPATH=. $(PYTHON_BIN)/python scripts/sbom.py build/auditlake.cdx.json

bench: setup
	@$(PYTHON_BIN)/python -m pip install --quiet -e '.[bench]'
	@for script in bench/*.py; do [ -e "$$script" ] || continue; echo "== $$script"; PYTHONPATH=. $(PYTHON_BIN)/python "$$script" || exit 1; done

PEERS_HOME ?= build/peers
PEERS = PYTHONPATH=$(CURDIR):$(CURDIR)/bench PEERS_HOME=$(abspath $(PEERS_HOME)) $(PYTHON_BIN)/python -m peers

peers: setup ## What users would run instead, in the same session: JOBS='tpcb insert' SCALE=0.1 RUNS=3 ARGS=--missing
	@[ "$$(cat $(PEERS_HOME)/installed-for 2>/dev/null)" = "$$(cksum <bench/peers-requirements.txt)" ] || { \
		$(PYTHON_BIN)/python -m venv $(PEERS_HOME)/env && \
		$(PEERS_HOME)/env/bin/python -m pip install --quiet -r bench/peers-requirements.txt && \
		cksum <bench/peers-requirements.txt >$(PEERS_HOME)/installed-for; }
	$(PEERS) $(JOBS) --scale $(or $(SCALE),0.1) --runs $(or $(RUNS),3) $(ARGS)

peers-page: setup ## bench/RESULTS.md, its plots and README's lines, from the files in bench/results
	$(PEERS).page

wheel: setup ## dist/auditlake-VERSION-py3-none-any.whl, with the Delta jars
	@$(PYTHON_BIN)/python scripts/wheel.py

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis auditlake.egg-info
