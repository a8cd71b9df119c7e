"""A worker of the checkout.

CHECKOUT_DIR is the folder of its files, PAYMENTS_URL is where the payment service listens,
CHECKOUT_STORE is the store: the address of a server, or else orders.db in the folder.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from examples.checkout.payments import Payments
from examples.checkout.shop import Shop
from examples.checkout.workflow import Outside, outside
from stepwell import Stepwell

FOLDER = Path(os.environ.get("CHECKOUT_DIR", "build/checkout"))
PAYMENTS_URL = os.environ.get("PAYMENTS_URL", "http://127.0.0.1:8080")


@asynccontextmanager
async def lifespan(app: Stepwell) -> AsyncGenerator[None, None]:
    """Open what the steps share for as long as the worker lives."""
    async with httpx.AsyncClient(base_url=PAYMENTS_URL, timeout=5.0) as http:
        token = outside.set(Outside(Shop(FOLDER / "shop.db"), Payments(http), FOLDER / "invoices"))
        try:
            yield
        finally:
            outside.reset(token)


app = Stepwell(os.environ.get("CHECKOUT_STORE", FOLDER / "orders.db"), lifespan=lifespan)

if __name__ == "__main__":
    # Few at a time, so that the demo takes long enough to be killed; the default is 100.
    asyncio.run(app.worker(concurrency=8).run())
