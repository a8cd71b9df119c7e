"""The figures of the workload `pending`: one row for each number of tasks that wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bench.spec import Spec

COMMON: Final = (
    *("workload", "mode", "durability", "concurrency", "executions", "runs", "reconciled"),
    "versions",
)
"""What is the same in all rows."""


def rows_of(specs: Sequence[Spec], reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The JSON object: the figures of each row are those of a report of its own."""
    pairs = list(zip(specs, reports, strict=True))
    first = {spec.blocked: found for spec, found in reversed(pairs)}
    rows = [
        {
            "pending": spec.pending,
            "blocked": spec.blocked,
            "p50_ratio": round(found["p50_ms"] / first[spec.blocked]["p50_ms"], 2),
            **{key: figure for key, figure in found.items() if key not in COMMON},
        }
        for spec, found in pairs
    ]
    return {**{key: reports[0][key] for key in COMMON}, "rows": rows}


def rows_as_text(found: dict[str, Any]) -> str:
    head = (
        f"pending, {found['mode']}, durability {found['durability']}: "
        f"{found['executions']:,} times a claim and an end, concurrency {found['concurrency']}, "
        f"{found['runs']} samples of each row, reconciled"
    )
    names = f"  {'waiting':>10} {'':18} {'p50 ms':>8} {'':>7} {'p95 ms':>8} {'CPU µs':>8}"
    return "\n".join([head, names, *map(row_as_text, found["rows"])])


def row_as_text(row: dict[str, Any]) -> str:
    what = "blocked, of one key" if row["blocked"] else "in the same order"
    return (
        f"  {row['pending']:>10,} {what:<19}{row['p50_ms']:>8.3f} ({row['p50_ratio']:.2f}x)"
        f" {row['p95_ms']:>8.3f} {row['cpu_us']:>8.0f}"
    )
