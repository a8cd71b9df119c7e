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
from bench.workloads import PAYLOAD, burst_of

MIB = 1024 * 1024


def report(spec: Spec, samples: Sequence[Sample]) -> dict[str, Any]:
    """The JSON object: percentiles, CPU and floor are medians over the samples."""
    rates = [spec.executions / one.measured.wall for one in samples]
    floor_rate = median([spec.executions / one.floor.wall for one in samples])
    found: dict[str, Any] = {
        "scenario" if spec.is_workflow else "workload": spec.name,
        "mode": spec.mode,
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
    if spec.mode == "tcp":
        found |= of_processes(spec, samples)
    found |= of_workload(spec, samples)
    if spec.loop_load:
        found["loop_load"] = spec.loop_load
    if spec.name == "signal" and spec.concurrency == 1 and not spec.workers:
        wakes = [percentile(sorted(one.measured.wakes), 0.5) for one in samples]
        found["wake_ms"] = round(median(wakes) * 1e3, 3)
    return found


def of_workload(spec: Spec, samples: Sequence[Sample]) -> dict[str, Any]:
    """What was set for the queue, and how much of a rate limit was used."""
    if spec.name == "keys":
        return {"keys": spec.keys, "key_limit": spec.key_limit}
    if spec.name == "payload":
        return {"payload_bytes": PAYLOAD}
    if spec.name == "rate":
        burst = burst_of(spec)
        used = [spec.executions / (burst + spec.rate * one.measured.wall) for one in samples]
        return {"rate_limit": spec.rate, "burst": burst, "rate_used": round(median(used), 3)}
    return {}


def of_processes(spec: Spec, samples: Sequence[Sample]) -> dict[str, Any]:
    """What the server and the workers of their own have used, and how busy each process was."""
    runs = [one.measured for one in samples]
    servers = [(one.server, one.wall) for one in runs if one.server is not None]
    found: dict[str, Any] = {
        "server_cpu_us": round(median([one.cpu / spec.executions * 1e6 for one, _ in servers]), 1),
        "server_peak_rss_mib": round(median([one.peak_rss / MIB for one, _ in servers]), 1),
        "cpu_share": {
            "client": share([one.cpu / one.wall for one in runs]),
            "server": share([one.cpu / wall for one, wall in servers]),
        },
    }
    if spec.workers:
        cpus = [sum(worker.cpu for worker in one.workers) for one in runs]
        found["workers"] = spec.workers
        found["worker_cpu_us"] = round(median([cpu / spec.executions * 1e6 for cpu in cpus]), 1)
        busy = [sorted(worker.cpu / one.wall for worker in one.workers) for one in runs]
        found["cpu_share"]["workers"] = [share(of_one) for of_one in zip(*busy, strict=True)]
    return found


def share(parts: Sequence[float]) -> float:
    return round(median(parts), 3)


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
    if "server_cpu_us" in found:
        lines += lines_of_processes(found)
    if "keys" in found:
        lines.append(
            f"  keys         {found['keys']:>10,}     (at once {found['key_limit']:,} of each)"
        )
    if "rate_limit" in found:
        lines.append(
            f"  rate limit   {found['rate_limit']:>10,}/s   (bursts of {found['burst']:,}; "
            f"{found['rate_used']:.1%} used)"
        )
    if "wake_ms" in found:
        lines.append(
            f"  wake         {found['wake_ms']:>10.2f} ms p50, from signal to the next line"
        )
    return "\n".join(lines)


def lines_of_processes(found: dict[str, Any]) -> list[str]:
    shares = found["cpu_share"]
    lines = [
        f"  server CPU   {found['server_cpu_us']:>10.0f} µs per execution",
        f"  server peak  {found['server_peak_rss_mib']:>10.0f} MiB",
    ]
    busy = f"client {shares['client']:.0%}, server {shares['server']:.0%}"
    if "workers" in found:
        lines.append(f"  worker CPU   {found['worker_cpu_us']:>10.0f} µs per execution")
        busy += ", workers " + " ".join(f"{part:.0%}" for part in shares["workers"])
    return [*lines, f"  of one core  {busy}"]
