"""Run a stage with its metrics, and read them as a scraper does."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests import command
from tests.running import await_true

Samples = dict[str, float]


@dataclass(frozen=True)
class Stage:
    """A running stage: its process, and the URL of its metrics."""

    process: command.Process
    url: str

    def samples(self) -> Samples:
        """Scrape; the samples by name and labels, as Prometheus writes them."""
        with urlopen(self.url) as answer:  # noqa: S310 - our own
            text = answer.read().decode()
        found = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return {
            each.name + (f"{{{','.join(each.labels.values())}}}" if each.labels else ""): each.value for each in found
        }

    def await_sample(self, name: str, value: float) -> Samples:
        """Wait until a sample has a value; return all."""
        last: Samples = {}

        def has() -> bool:
            last.update(now := self.samples())
            return now.get(name) == value

        await_true(has)
        return last

    def status(self, path: str) -> int:
        """Return the status of another path."""
        try:
            with urlopen(self.url.replace("/metrics", path)) as answer:  # noqa: S310 - our own
                return int(answer.status)
        except URLError as exc:
            return int(getattr(exc, "code", 0))


@contextmanager
def running(
    arguments: Sequence[str | Path], environment: Mapping[str, str] | None = None, code: str | None = None
) -> Iterator[Stage]:
    """Run a stage with metrics on a free port, and kill it at the end."""
    often = f"from auditlake.metrics import server; server._READ_EVERY_S = 0.2\n{code or ''}"
    with command.start([*arguments, "--metrics-port", "0", "--log-format", "json"], environment, often) as process:
        assert process.stderr is not None
        served = json.loads(process.stderr.readline())
        assert served["event"] == "metrics_served"
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield Stage(process, served["message"].removeprefix("metrics are at "))
        finally:
            process.kill()
