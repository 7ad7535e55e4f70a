"""The option --metrics-port, and notices to a service manager: what a command that runs on shows of itself."""

from __future__ import annotations  # settings are imported when a command runs

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from auditlake.cli.options import lake_of
from auditlake.counters import Beat
from auditlake.messages import Event, Notice, say

if TYPE_CHECKING:  # pydantic takes half of the time of --help
    from auditlake.config import Settings

with_metrics = click.option(
    "--metrics-port", metavar="[ADDRESS:]PORT", help="Serve /metrics, /healthz and /readyz here [not at all]."
)


@contextmanager
def exported_metrics(settings: Settings, *stages: Beat) -> Iterator[None]:
    """Export the metrics of these stages during the block, if the settings ask for it.

    Raises ConfigError if the address cannot be bound.
    """
    if settings.metrics_port is None:
        yield
        return
    from auditlake.metrics.server import exporting  # noqa: PLC0415 - its library is imported only if asked for

    reads_source = settings.source is not None and not {Beat.APPLY, Beat.WEBHOOK}.issuperset(stages)
    conninfo = settings.source_required() if reads_source else None
    address, port = settings.metrics_port
    with exporting(address, port, frozenset(stages), lake_of(settings), conninfo) as url:
        say(Notice(Event.METRICS_SERVED, f"metrics are at {url}"))
        yield


@contextmanager
def notified_manager(stop: threading.Event, *stages: Beat) -> Iterator[None]:
    """Notify the service manager of these stages during the block, if the environment names one.

    Raises ConfigError if its variables are not valid.
    """
    if not os.environ.get("NOTIFY_SOCKET"):
        yield
        return
    from auditlake.metrics.service import notified  # noqa: PLC0415 - few processes have a service manager

    with notified(frozenset(stages), stop):
        yield
