"""What identifies this boot of this machine."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    """The same until the machine restarts: monotonic time is comparable only within one boot."""
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
