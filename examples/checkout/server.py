"""Serves the store of the checkout over TCP: `stepwell server`, with the settings of the demo.

CHECKOUT_DIR is the folder of its files, CHECKOUT_PORT is where it listens.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stepwell.cli import main

FOLDER = Path(os.environ.get("CHECKOUT_DIR", "build/checkout"))
PORT = os.environ.get("CHECKOUT_PORT", "7878")
LEASE = "2"
"""Seconds after which the runs of a killed worker are handed over; 15 would be a long demo."""

if __name__ == "__main__":
    sys.argv = [
        "stepwell",
        "server",
        *("--store", str(FOLDER / "orders.db"), "--port", PORT, "--lease", LEASE),
    ]
    main()
