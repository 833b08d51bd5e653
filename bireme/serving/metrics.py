"""Prometheus metrics. Models count for themselves; this reads the counts when it is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bireme.profiler import memory
from bireme.serving.language.model import LanguageModel
from bireme.serving.repository import Repository

_LABELS = ["model", "version"]
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """The metrics of one server."""

    def __init__(self, repository: Repository, languages: Mapping[str, LanguageModel]):
        self._registry = CollectorRegistry()
        self._registry.register(_Models(repository))
        self._registry.register(_Languages(languages))
        self._answers = Counter(
            "bireme_answers",
            "Answers by protocol and status",
            ["protocol", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "bireme_answer_seconds",
            "Time from a request's headers to its answer's end",
            ["protocol"],
            registry=self._registry,
            buckets=_SECONDS,
        )

    def answered(self, protocol: str, status: str, seconds: float) -> None:
        """An answer was given."""
        self._answers.labels(protocol, status).inc()
        self._seconds.labels(protocol).observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self._registry)


class _Models(Collector):
    def __init__(self, repository: Repository):
        self._repository = repository

    def collect(self) -> Iterator[Metric]:
        counters = {
            "bireme_requests_success": "Requests answered",
            "bireme_requests_failure": "Requests that failed",
            "bireme_rows": "Rows computed",
            "bireme_batches": "Batches run",
            "bireme_queue_seconds": "Time that requests waited",
            "bireme_compute_seconds": "Time that requests' batches ran",
        }
        gauges = {
            "bireme_waiting_requests": "Requests in queues",
            "bireme_waiting_bytes": "Bytes of the inputs in queues",
        }
        families: dict[str, Metric] = {
            **{n: CounterMetricFamily(n, d, labels=_LABELS) for n, d in counters.items()},
            **{n: GaugeMetricFamily(n, d, labels=_LABELS) for n, d in gauges.items()},
        }
        for version in self._repository.all():
            s = version.statistics
            requests, size = version.waiting
            with s.lock:
                values = {
                    "bireme_requests_success": s.success.count,
                    "bireme_requests_failure": s.fail.count,
                    "bireme_rows": s.rows,
                    "bireme_batches": s.executions,
                    "bireme_queue_seconds": s.queue.ns / 1e9,
                    "bireme_compute_seconds": s.compute_infer.ns / 1e9,
                    "bireme_waiting_requests": requests,
                    "bireme_waiting_bytes": size,
                }
            for name, value in values.items():
                _add(families[name], [version.name, version.number], value)
        yield from families.values()
        peak = memory.peak_process_bytes()
        yield GaugeMetricFamily("bireme_peak_memory_bytes", "Most memory so far", value=peak)


class _Languages(Collector):
    def __init__(self, languages: Mapping[str, LanguageModel]):
        self._languages = languages

    def collect(self) -> Iterator[Metric]:
        def gauge(name: str, about: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"bireme_{name}", about, labels=["model"])

        gauges = {
            "running": gauge("texts_running", "Texts in steps"),
            "waiting": gauge("texts_waiting", "Texts in line"),
            "pages": gauge("pages_used", "Pages in use"),
            "preempted": gauge("preempted", "Times that a text gave up its pages"),
        }
        for name, model in list(self._languages.items()):
            for key, value in model.engine.load.items():
                gauges[key].add_metric([name], value)
        yield from gauges.values()


def _add(family: Metric, labels: list[str], value: float) -> None:
    if isinstance(family, CounterMetricFamily | GaugeMetricFamily):
        family.add_metric(labels, value)
