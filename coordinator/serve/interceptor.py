# SPDX-License-Identifier: Apache-2.0
"""Around each call: who asks, a span, and a status with its reason for each error. Nothing else catches what a handler
raises."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from opentelemetry import propagate, trace

from coordinator.errors import INTERNAL, answer_to
from coordinator.serve.security import Tokens

log = logging.getLogger(__name__)

Handler = Callable[..., Awaitable[Any]]


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Traces each call of the service and answers its errors. With ``tokens`` it lets in only who has one."""

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens
        self._tracer = trace.get_tracer("timeslice.coordinator")

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith("/timeslice."):
            return handler
        codecs = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._around(handler.stream_stream, method), **codecs)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(self._around(handler.unary_stream, method), **codecs)
        return grpc.unary_unary_rpc_method_handler(self._around(handler.unary_unary, method), **codecs)

    def _around(self, inner: Any, method: str) -> Any:
        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            metadata = {str(key): str(value) for key, value in context.invocation_metadata() or ()}
            with self._tracer.start_as_current_span(
                method.lstrip("/"),
                context=propagate.extract(metadata),
                kind=trace.SpanKind.SERVER,
                attributes={"rpc.system": "grpc", "rpc.method": method.rpartition("/")[2]},
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    if self._tokens is not None:
                        self._tokens.check(metadata.get("authorization"))
                    return await inner(request, context)
                except Exception as error:
                    answer = answer_to(error)
                    if answer is None:
                        log.exception("%s failed in a way that nobody foresaw.", method)
                        answer = INTERNAL
                    span.set_attribute("timeslice.reason", answer.reason)
                    span.set_status(trace.StatusCode.ERROR, answer.message)
                    await context.abort(answer.status, answer.message, answer.trailing())
                    raise

        return call
