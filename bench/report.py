"""From samples to the figures that are printed."""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import Sequence
from importlib.metadata import version
from statistics import median
from typing import Any

from bench.samples import Sample
from bench.spec import Spec

MIB = 1024 * 1024


def report(spec: Spec, mode: str, samples: Sequence[Sample]) -> dict[str, Any]:
    """The JSON object: percentiles, CPU and floor are medians over the samples."""
    rates = [spec.executions / one.measured.wall for one in samples]
    floor_rate = median([spec.executions / one.floor.wall for one in samples])
    found: dict[str, Any] = {
        "scenario" if spec.is_workflow else "workload": spec.name,
        "mode": mode,
        "durability": spec.durability,
        "concurrency": spec.concurrency,
        "executions": spec.executions,
        "runs": len(samples),
        "rate": {
            "min": round(min(rates), 1),
            "median": round(median(rates), 1),
            "max": round(max(rates), 1),
        },
        "p50_ms": across(samples, 0.50),
        "p95_ms": across(samples, 0.95),
        "p99_ms": across(samples, 0.99),
        "cpu_us": round(median([one.measured.cpu / spec.executions * 1e6 for one in samples]), 1),
        "peak_rss_mib": round(median([one.measured.peak_rss / MIB for one in samples]), 1),
        "floor_rate": round(floor_rate, 1),
        "floor_ratio": round(median(rates) / floor_rate, 3),
        "reconciled": True,  # a sample that is not raises, and there is no report
        "versions": versions(),
    }
    if spec.loop_load:
        found["loop_load"] = spec.loop_load
    if spec.name == "signal" and spec.concurrency == 1:
        wakes = [percentile(sorted(one.measured.wakes), 0.5) for one in samples]
        found["wake_ms"] = round(median(wakes) * 1e3, 3)
    return found


def across(samples: Sequence[Sample], part: float) -> float:
    return round(median([percentile(one.latencies, part) for one in samples]) * 1e3, 3)


def percentile(ordered: Sequence[float], part: float) -> float:
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def versions() -> dict[str, str]:
    return {
        "stepwell": version("stepwell"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def as_text(found: dict[str, Any]) -> str:
    what = found.get("scenario") or found.get("workload")
    rate = found["rate"]
    head = (
        f"{what}, {found['mode']}, durability {found['durability']}: "
        f"{found['executions']:,} executions, concurrency {found['concurrency']}, "
        f"{found['runs']} samples, reconciled"
    )
    lines = [
        head,
        f"  rate         {rate['median']:>10,.0f}/s   ({rate['min']:,.0f} to {rate['max']:,.0f})",
        f"  p50          {found['p50_ms']:>10.2f} ms start to end",
        f"  p95          {found['p95_ms']:>10.2f} ms",
        f"  p99          {found['p99_ms']:>10.2f} ms",
        f"  CPU          {found['cpu_us']:>10.0f} µs per execution",
        f"  peak memory  {found['peak_rss_mib']:>10.0f} MiB",
        f"  floor        {found['floor_rate']:>10,.0f}/s   (ratio {found['floor_ratio']:.2f})",
    ]
    if "wake_ms" in found:
        lines.append(
            f"  wake         {found['wake_ms']:>10.2f} ms p50, from signal to the next line"
        )
    return "\n".join(lines)
