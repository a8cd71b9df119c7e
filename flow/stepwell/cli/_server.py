"""The command that serves a store to other processes and machines."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepwell._app.shutdown import StopRequests
from stepwell.cli import _notify
from stepwell.cli._client import store_path
from stepwell.cli._logs import log_to_stderr
from stepwell.cli._options import level_of
from stepwell.cli._refusal import Refusal, refusals
from stepwell_queue.clock import RandomIds, SystemClock
from stepwell_runtime.log import log
from stepwell_runtime.tuning import worker_process

if TYPE_CHECKING:
    from stepwell.cli._server_settings import ServerSettings
    from stepwell_queue.tcp.server import Server, ServerConfig


def add_to(app: typer.Typer) -> None:
    app.command()(server)


def _level(value: str | None) -> str | None:
    return None if value is None else level_of(value)


def server(
    store: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The store to serve; it is made if it is missing."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="The address to listen on, and no other.", show_default="127.0.0.1"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="The port to listen on; 0 = any free one.", show_default="7878"
        ),
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            help="What survives: `full` = power loss, `process` = kill -9.", show_default="full"
        ),
    ] = None,
    lease: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which a worker that shows no life loses its runs.",
            show_default="15",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="The file that holds the token which clients must show; needed unless the host "
            "is a loopback address."
        ),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="The server's certificates (PEM); with --key, it is TLS.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The key of the certificate (PEM).")] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(help="Clients must show a certificate of these authorities (PEM)."),
    ] = None,
    max_connections: Annotated[
        int | None, typer.Option(min=1, help="Connections at once.", show_default="1000")
    ] = None,
    max_in_flight: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Unanswered requests of one connection, over which no more are read.",
            show_default="10000",
        ),
    ] = None,
    max_queued: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="What one connection may leave unread, such as 64MiB, before it is closed.",
            show_default="64MiB",
        ),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            min=0, help="Seconds that requests get to be answered when it stops.", show_default="10"
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            callback=_level,
            help="What is logged on stderr: debug, info, warning, error.",
            show_default="info",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="STEPWELL_SERVER_CONFIG",
            metavar="FILE",
            help='A TOML file with the same settings, such as `max_queued = "64MiB"`; flags and '
            "STEPWELL_SERVER_… in the environment go before it.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the address as one line of JSON.")
    ] = False,
) -> None:
    """Serve a store over TCP until SIGTERM.

    Prints its address once it listens. Ctrl+C stops it, too. A second signal stops at once; clients
    repeat what was not answered.
    """
    from stepwell.cli._server_settings import read_settings

    flags = {
        "store": store,
        "host": host,
        "port": port,
        "durability": durability,
        "lease": lease,
        "token_file": token_file,
        "certificate": certificate,
        "key": key,
        "client_ca": client_ca,
        "max_connections": max_connections,
        "max_in_flight": max_in_flight,
        "max_queued": max_queued,
        "grace": grace,
        "log_level": log_level,
    }
    with refusals():
        settings = read_settings({k: v for k, v in flags.items() if v is not None}, config)
        log_to_stderr(settings.log_level)
        made = config_of(settings)
        with worker_process():
            asyncio.run(serve(made, settings.grace, as_json))
        log.info("server_stopped")


def config_of(settings: ServerSettings) -> ServerConfig:
    from stepwell_queue.tcp.access import token_in
    from stepwell_queue.tcp.server import ServerConfig

    given = settings.model_dump(exclude_none=True, exclude={"token_file", "grace", "log_level"})
    given["store"] = store_path(settings.store)
    try:
        if settings.token_file is not None:
            given["token"] = token_in(settings.token_file)
        config = ServerConfig(**given)
        # Here, so that what cannot be served leaves no store behind.
        config.check()
        config.context()
    except ValueError as error:
        raise Refusal(str(error)) from None
    return config


async def serve(config: ServerConfig, grace: float, as_json: bool) -> None:
    server = await opened(config)
    # Not before it is open: until then, there is nothing that a signal would have to wait for.
    with StopRequests() as requests:
        announce(server, config, as_json)
        _notify.notify(_notify.READY)
        await requests.first.wait()
        _notify.notify(_notify.STOPPING)
        await stop(server, requests, grace)


async def opened(config: ServerConfig) -> Server:
    from stepwell_queue.tcp.server import open_server

    clock = SystemClock()
    try:
        return await open_server(config, clock=clock, ids=RandomIds(clock))
    except ValueError as error:
        raise Refusal(str(error)) from None
    except OSError as error:
        where = f"{config.host}:{config.port}"
        if error.errno == errno.EADDRINUSE:
            raise Refusal(f"{where} is in use by another program: choose another --port") from None
        raise Refusal(f"cannot serve at {where}: {error.strerror or error}") from None


def announce(server: Server, config: ServerConfig, as_json: bool) -> None:
    host, port = server.address
    scheme = "tcp" if config.certificate is None else "tls"
    address = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    if as_json:
        print(json.dumps({"address": address, "host": host, "port": port}), flush=True)
    else:
        print(f"serving {config.store} at {address}", flush=True)
    log.info("server_starts", store=str(config.store), address=address)


async def stop(server: Server, requests: StopRequests, grace: float) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as patience:
            requests.on_second(lambda: patience.reschedule(loop.time()))
            await server.stop(grace)
    except TimeoutError:
        log.warning("stopped_at_once", hint="clients repeat what was not answered")
        await server.stop(0.0)
