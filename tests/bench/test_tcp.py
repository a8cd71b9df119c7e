"""Over TCP, the same is measured, counted and reconciled, and the server's share told apart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from bench import floor, flows, samples
from bench.peer import peer
from bench.samples import BrokenSample
from bench.spec import SCENARIOS, Floor, Measured, Spec, Unreconciled
from stepwell import Access, Stepwell
from tests.bench.conftest import EXECUTIONS
from tests.bench.test_floor import TABLES, rows_of
from tests.bench.test_samples import KEYS, OF_WORKLOAD, WITH_ONE_ROW, report_of, tamper

OF_THE_SERVER = {"server_cpu_us", "server_peak_rss_mib", "cpu_share"}
SMALL = ("--mode", "tcp", "--concurrency", "4", "--runs", "1", "--durability", "process")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_over_tcp_reconciles_and_reports_every_figure(
    scenario: str, tmp_path: Path
) -> None:
    found = report_of(
        tmp_path / "figures.json",
        *("workflow", "--scenario", scenario, "--executions", str(EXECUTIONS), *SMALL),
    )
    assert found.keys() == KEYS | OF_THE_SERVER | {"scenario"}
    assert (found["mode"], found["reconciled"]) == ("tcp", True)
    assert 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"]
    assert min(found["cpu_us"], found["server_cpu_us"], found["server_peak_rss_mib"]) > 0
    assert found["cpu_share"].keys() == {"client", "server"}


@pytest.mark.parametrize("workload", WITH_ONE_ROW)
def test_a_workload_over_tcp_reconciles_and_reports_every_figure(
    workload: str, tmp_path: Path
) -> None:
    found = report_of(
        tmp_path / "figures.json",
        *("queue", "--workload", workload, "--executions", str(EXECUTIONS), *SMALL),
    )
    more = OF_WORKLOAD.get(workload, set())
    assert found.keys() == KEYS | OF_THE_SERVER | {"workload"} | more
    assert found["server_cpu_us"] > 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("workflow", "--scenario", "linear"),
        ("workflow", "--scenario", "signal"),
        ("queue", "--workload", "drain"),
        ("queue", "--workload", "priorities"),
        ("queue", "--workload", "keys", "--keys", "3"),
        ("queue", "--workload", "rate", "--rate", "100"),
    ],
)
def test_workers_in_processes_of_their_own_do_the_work(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report_of(
        tmp_path / "figures.json",
        *(*arguments, "--executions", str(EXECUTIONS), *SMALL, "--workers", "2"),
    )
    assert found["workers"] == len(found["cpu_share"]["workers"]) == 2
    assert found["worker_cpu_us"] > 0
    assert found["reconciled"] is True
    said = capsys.readouterr().out
    assert "server CPU" in said
    assert "of one core  client" in said
    assert ", workers " in said


def test_a_signal_over_tcp_reports_the_wake_up_of_a_worker_in_the_same_process(
    tmp_path: Path,
) -> None:
    arguments = ("workflow", "--scenario", "signal", "--executions", "5", *SMALL)
    found = report_of(tmp_path / "figures.json", *arguments, "--concurrency", "1")
    assert found["wake_ms"] > 0


@pytest.mark.parametrize("workers", [0, 2])
def test_the_floor_of_a_sample_over_tcp_ends_with_its_rows(workers: int, tmp_path: Path) -> None:
    spec = Spec("linear", EXECUTIONS, 4, "process", mode="tcp", workers=workers)
    measured = samples.part("measure", spec, tmp_path, Measured)
    found = samples.part("floor", spec, tmp_path, Floor)
    for table, order in TABLES.items():
        written = rows_of(tmp_path / "floor.db", table, order)
        assert written == rows_of(tmp_path / "sample.db", table, order)
    assert found.commits == min(measured.commits, found.rows)
    assert measured.commits > 0


def test_a_claim_is_a_row_of_the_floor_where_the_client_does_not_work(tmp_path: Path) -> None:
    spec = Spec("linear", 3, 4, "process", mode="tcp", workers=1)
    samples.part("measure", spec, tmp_path, Measured)
    sample = floor.Sample(tmp_path / "sample.db", spec)
    statements = [sql for sql, _ in sample.writes(sample.runs[0], spec)]
    assert statements.count(floor.CLAIM) == 1


def test_a_file_of_a_server_that_was_tampered_with_does_not_reconcile(tmp_path: Path) -> None:
    spec = Spec("linear", EXECUTIONS, 4, "process", mode="tcp")
    samples.part("measure", spec, tmp_path, Measured)
    samples.part("reconcile", spec, tmp_path, list[float])
    tamper(tmp_path, "DELETE FROM journal WHERE run = 3 AND seq = 2")
    with pytest.raises(Unreconciled, match="must be"):
        samples.part("reconcile", spec, tmp_path, list[float])


def test_a_sample_whose_server_cannot_open_the_file_is_broken(tmp_path: Path) -> None:
    (tmp_path / "sample.db").write_bytes(b"no database, but long enough to be taken for one" * 99)
    spec = Spec("linear", EXECUTIONS, 4, "process", mode="tcp")
    with pytest.raises(BrokenSample, match="sample.db"):
        samples.part("measure", spec, tmp_path, Measured)


def test_a_process_that_dies_of_what_it_was_told_breaks_the_sample(tmp_path: Path) -> None:
    async def die() -> None:
        async with peer("bench.server") as server:
            await server.tell("open", str(tmp_path / "a.db"), "no such durability")

    with pytest.raises(BrokenSample, match=r"bench\.server ended with 1 too soon"):
        asyncio.run(die())


def test_a_server_that_dies_while_it_is_measured_breaks_the_sample(tmp_path: Path) -> None:
    async def measure() -> None:
        async with peer("bench.server") as server:
            address = await server.tell("open", str(tmp_path / "a.db"), "process")
            app = Stepwell(address, access=Access(), include=[flows])
            async with app, app.worker() as worker:
                run = await app.start(flows.approval(flows.order_number(1)))
                await worker.drain()
                server.process.kill()
                await run.result()

    with pytest.raises(BrokenSample, match=r"bench\.server ended with -9 too soon"):
        asyncio.run(measure())


def test_usage_counts_from_one_look_to_the_next(tmp_path: Path) -> None:
    async def looks() -> list[int]:
        async with peer("bench.server") as server:
            await server.tell("open", str(tmp_path / "a.db"), "process")
            first, second = await server.look(), await server.look()
            assert second.cpu >= first.cpu > 0
            assert second.peak_rss >= second.rss > 0
            return [first.commits, second.commits]

    first, second = asyncio.run(looks())
    assert second >= first


def test_what_a_sample_has_measured_is_kept_whole(tmp_path: Path) -> None:
    spec = Spec("drain", 5, 4, "process", mode="tcp", workers=2)
    told = samples.part("measure", spec, tmp_path, Measured)
    kept = msgspec.json.decode((tmp_path / "measured.json").read_bytes(), type=Measured)
    assert kept == told
    assert kept.server is not None
    assert len(kept.workers) == 2
