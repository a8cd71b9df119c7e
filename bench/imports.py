"""The time of `import stepwell` beside that of `import asyncio`, each in new processes."""

from __future__ import annotations

import json
from statistics import median
from typing import Any, Final

from bench.samples import child

OPTIONAL: Final = ("aiosqlite", "httpx", "pydantic", "rich", "typer")
"""Packages that are imported only when they are used."""
TIMED: Final = """
import sys, time
begun = time.perf_counter()
import {module}
took = time.perf_counter() - begun
import json
print(json.dumps([took, sorted(set({optional}) & set(sys.modules))]))
"""


def measure(runs: int) -> dict[str, Any]:
    """Import both in turn, so that what else the machine does meets both alike."""
    times: dict[str, list[float]] = {"asyncio": [], "stepwell": []}
    optional: list[str] = []
    for _ in range(runs):
        for module, its_times in times.items():
            program = TIMED.format(module=module, optional=OPTIONAL)
            took, optional = json.loads(child(["-c", program]))
            its_times.append(took * 1e3)
    own, base = median(times["stepwell"]), median(times["asyncio"])
    return {
        "runs": runs,
        "asyncio_ms": round(base, 1),
        "stepwell_ms": round(own, 1),
        "difference_ms": round(own - base, 1),
        "optional_imported": optional,
    }


def as_text(found: dict[str, Any]) -> str:
    optional = ", ".join(found["optional_imported"]) or "none"
    return (
        f"import stepwell {found['stepwell_ms']:.0f} ms, "
        f"import asyncio {found['asyncio_ms']:.0f} ms: "
        f"{found['difference_ms']:.0f} ms more ({found['runs']} processes each)\n"
        f"  optional packages that it imports: {optional}"
    )
