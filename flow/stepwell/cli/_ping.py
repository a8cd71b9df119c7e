"""The command that asks a server whether it is there."""

from __future__ import annotations

import statistics
from typing import Annotated

import typer

from stepwell._app.app import Stepwell
from stepwell.cli import _print as out
from stepwell.cli._client import in_store, server_address
from stepwell.cli._options import JsonOption, StoreOption
from stepwell.cli._refusal import Refusal, refusals
from stepwell.cli._shapes import Shape
from stepwell_queue.open import is_server


def add_to(app: typer.Typer) -> None:
    app.command()(ping)


def ping(
    store: StoreOption,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="How many round trips.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Ask a server whether it is there and lets this client in.

    Says its version and durability, and how long a round trip takes.
    """
    with refusals():
        if not is_server(store):
            raise Refusal(f"{store!r} is a file, which nobody serves: ping takes tcp:// or tls://")
        address = server_address(store)

    async def work(app: Stepwell) -> Shape:
        from stepwell_queue.tcp.client.store import TcpStore

        server = app.engine.store
        assert isinstance(server, TcpStore)
        answers = [await server.ping() for _ in range(count)]
        return {
            "address": address,
            "version": answers[-1].version,
            "durability": answers[-1].durability,
            "workers": answers[-1].workers,
            "round_trip_ms": round(statistics.median(one.seconds for one in answers) * 1000, 3),
            "fastest_ms": round(min(one.seconds for one in answers) * 1000, 3),
        }

    shape = in_store(store, work)
    if as_json:
        out.document(shape)
    else:
        typer.echo(
            f"{address} is there: Stepwell {shape['version']}, durability {shape['durability']}, "
            f"{shape['workers']} workers, round trip {shape['round_trip_ms']} ms "
            f"(median of {count}, fastest {shape['fastest_ms']} ms)"
        )
