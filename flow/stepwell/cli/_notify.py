"""Tells the service manager how this process stands: systemd's sd_notify protocol."""

from __future__ import annotations

import os
import socket

from stepwell_runtime.log import log

READY, STOPPING = "READY=1", "STOPPING=1"


def notify(state: str) -> None:
    """Send a state to where NOTIFY_SOCKET says; without it, do nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # Linux: a name that is no file
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(address)
            sender.send(state.encode())
    except OSError as error:
        log.warning("service_manager_not_told", state=state, error=str(error))
