"""What the tasks of each workload of `bench queue` are."""

from __future__ import annotations

from typing import Final

from bench import flows
from bench.spec import Spec
from stepwell import TaskCall
from stepwell_queue.contract import QueueSettings, RateLimit

PRIORITIES: Final = 10
PAYLOAD: Final = 8 * 1024
"""Bytes of text in the argument and in the result of a task with a payload."""

QUEUE: Final = "default"
_BODY: Final = "payload." * (PAYLOAD // 8)


def call_of(spec: Spec, number: int) -> TaskCall[flows.Order]:
    """The task that has this number."""
    call = flows.noop(order_of(spec, number))
    if spec.name == "priorities":
        return call.with_options(priority=priority_of(number))
    if spec.name == "keys":
        return call.with_options(key=key_of(spec, number))
    return call


def order_of(spec: Spec, number: int) -> flows.Order:
    order = flows.order_number(number)
    return {**order, "body": _BODY} if spec.name == "payload" else order


def priority_of(number: int) -> int:
    """Neighbours have different ones, and all are equally frequent."""
    return number * 7 % PRIORITIES


def key_of(spec: Spec, number: int) -> str:
    return f"tenant-{number % spec.keys}"


def settings_of(spec: Spec) -> QueueSettings | None:
    """What is set for the queue; None = nothing."""
    if spec.name == "keys":
        return QueueSettings(key_limit=spec.key_limit)
    if spec.name == "rate":
        return QueueSettings(rate=RateLimit(spec.rate, 1.0, burst_of(spec)))
    if spec.blocked:
        return QueueSettings(key_limit=spec.concurrency)
    return None


def burst_of(spec: Spec) -> int:
    """How many may start at once under the rate limit: what it grants in a tenth of a second."""
    return max(1, spec.rate // 10)
