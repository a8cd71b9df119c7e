"""Client of the payment service."""

from __future__ import annotations

import json
from http import HTTPStatus

import httpx

from examples.checkout.model import CardDeclined, Order, Payment, PaymentsUnavailable


class Payments:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def charge(self, key: str, order: Order) -> Payment:
        """Charge the order's total, once per key. Raises CardDeclined, PaymentsUnavailable."""
        body = {"order": order.id, "amount": str(order.total), "currency": order.currency}
        await self._post("/charges", key, body)
        return Payment(key, order.total, order.currency)

    async def refund(self, key: str, order: Order) -> None:
        """Refund whatever was charged for the order, once. Raises PaymentsUnavailable."""
        await self._post("/refunds", key, {"order": order.id})

    async def _post(self, path: str, key: str, body: dict[str, str]) -> None:
        try:
            answer = await self._http.post(
                path, content=json.dumps(body), headers={"Idempotency-Key": key}
            )
        except httpx.TransportError as error:
            raise PaymentsUnavailable(body["order"], f"no answer: {error!r}") from error
        if answer.status_code == HTTPStatus.PAYMENT_REQUIRED:
            raise CardDeclined(body["order"], answer.text)
        if answer.is_error:
            raise PaymentsUnavailable(body["order"], f"answered {answer.status_code}")
