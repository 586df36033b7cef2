# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry: off unless the environment says where to send spans to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opentelemetry import trace

VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class TracingUnavailable(Exception):
    """Spans are asked for, and the exporter is not installed."""


def configure(environ: Mapping[str, str], replica_id: str) -> Callable[[], None]:
    """Send spans to where `VARIABLES` say, if they do. Returns how to send the last ones and stop.

    Raises:
        TracingUnavailable: the exporter is not installed.
    """
    if not any(environ.get(name) for name in VARIABLES):
        return lambda: None
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracingUnavailable(
            f"{' or '.join(VARIABLES)} is set, but the exporter is missing: pip install 'timeslice-system[otlp]'."
        ) from error
    resource = Resource.create({"service.name": "timeslice-coordinator", "service.instance.id": replica_id})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider.shutdown
