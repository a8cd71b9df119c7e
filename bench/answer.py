"""How a process of the benchmark answers the one that started it."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO, Final

UNRECONCILED: Final = 3
"""The exit code that says that counts differ."""


def answer_stream() -> BinaryIO:
    """Keep standard output for the answer; what is printed or logged goes to standard error."""
    sys.stdout.flush()
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answer
