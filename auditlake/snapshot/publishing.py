"""Put the chosen tables into the publication, which must carry them before their snapshot is taken."""

import psycopg

from auditlake.postgres.blockers import AGAINST_PUBLISHING, locks_awaited
from auditlake.postgres.connection import Row
from auditlake.postgres.publication import add_tables, create_publication
from auditlake.snapshot.plan import Plan


def publish(control: psycopg.Connection[Row], publication: str, plan: Plan) -> bool:
    """Create the publication, or add what it lacks; False, and nothing done, where a table of the plan is no more.

    Raises SourceUnready where PostgreSQL does not allow it, or where a table cannot be had in time.
    """
    names = [table.name for table in (plan.chosen if plan.publication is None else plan.unpublished)]
    if not names:
        return True
    what = f"publication {publication} could not be given its tables"
    try:
        with locks_awaited(control, what, names, AGAINST_PUBLISHING):
            if plan.publication is None:
                create_publication(control, publication, names)
            else:
                add_tables(control, publication, names)
    except psycopg.errors.UndefinedTable:
        return False
    return True
