"""Run the migrations of an application one by one: a process in the application's own environment.

    PYTHON migration_driver.py (--django SETTINGS | --alembic SCRIPTS) [--prepare CODE]

`migrations.py` starts it. It writes one line of JSON with the names of all steps in their order, then reads a name per
line and answers each with a line of JSON: {"error": null}, or the class of the error. `DATABASE_URL` and the variables
of libpq name the database. `--prepare` is Python that runs first, for an application with tables of no migration.

It imports nothing of this project, and only the standard library besides Django or Alembic.
"""

import argparse
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Run = Callable[[str], None]


def django_steps(settings: str) -> tuple[Sequence[str], Run]:
    """Return the migrations that Django plans, as `app name`, and how to run one."""
    os.environ["DJANGO_SETTINGS_MODULE"] = settings
    importlib.import_module("django").setup()
    db: Any = importlib.import_module("django.db")
    executor: Any = importlib.import_module("django.db.migrations.executor").MigrationExecutor(db.connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    management: Any = importlib.import_module("django.core.management")

    def run(step: str) -> None:
        management.call_command("migrate", *step.split(), verbosity=0, interactive=False)

    return [f"{each.app_label} {each.name}" for each, _ in plan], run


def alembic_steps(scripts: str) -> tuple[Sequence[str], Run]:
    """Return the revisions from the base to the heads, and how to upgrade to one."""
    config: Any = importlib.import_module("alembic.config").Config()
    config.set_main_option("script_location", scripts)
    config.set_main_option("sqlalchemy.url", os.environ["DATABASE_URL"].replace("%", "%%"))
    command: Any = importlib.import_module("alembic.command")
    directory: Any = importlib.import_module("alembic.script").ScriptDirectory.from_config(config)
    revisions = [each.revision for each in directory.walk_revisions("base", "heads")]
    return revisions[::-1], lambda step: command.upgrade(config, step)


def _answers(run: Run, lines: Iterator[str]) -> Iterator[dict[str, str | None]]:
    for line in lines:
        try:
            run(line.strip())
        except Exception as exc:  # noqa: BLE001 - whatever the application raises is the answer
            print(exc, file=sys.stderr)  # noqa: T201
            yield {"error": type(exc).__name__}
        else:
            yield {"error": None}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="run the migrations that stdin names")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--django", metavar="SETTINGS", help="the settings module of a Django project")
    kind.add_argument("--alembic", metavar="SCRIPTS", help="a folder of scripts, or package:folder")
    parser.add_argument("--prepare", default="", help="Python to run first")
    given = parser.parse_args()
    protocol = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # the application may print
        exec(given.prepare, {})  # noqa: S102 - code of the person who runs this
        steps, run = django_steps(given.django) if given.django else alembic_steps(given.alembic)
        print(json.dumps({"steps": list(steps)}), file=protocol, flush=True)
        for answer in _answers(run, iter(sys.stdin.readline, "")):
            print(json.dumps(answer), file=protocol, flush=True)


if __name__ == "__main__":
    main()
