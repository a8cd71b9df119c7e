"""Random sequences of verbs, compared with a model of a dozen lines."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stepwell_queue import (
    Append,
    Ask,
    CancelRun,
    Finish,
    RequestRefused,
    Reschedule,
    RunEnded,
    RunNotFound,
    Session,
    Settle,
    StaleFence,
    Status,
)
from stepwell_queue.contract import Terminate
from tests.store.kit import Bench, ManualClock, open_bench

T = TypeVar("T")
IDS = st.sampled_from(["a", "b"])


@dataclass
class Model:
    """What a run should be."""

    run: int
    status: Status
    fence: int = 0
    due: float | None = None
    journal: int = 0
    inbox: list[str] = field(default_factory=list[str])
    before: tuple[Status, float | None] | None = None  # it was paused

    def ready(self) -> None:
        self.status, self.due = Status.READY, None

    def asked(self, what: str) -> bool:
        return any(uid.startswith(what) for uid in self.inbox)

    def forget_pause(self) -> None:
        self.inbox = [uid for uid in self.inbox if not uid.startswith("pause")]

    def rest(self, status: Status, due: float | None = None) -> None:
        """Its worker lets go of it, and it goes on later unless it is to pause."""
        if self.asked("pause"):
            self.pause(status, due)
        else:
            self.status, self.due = status, due

    def pause(self, status: Status, due: float | None) -> None:
        self.forget_pause()
        self.before, self.status, self.due = (status, due), Status.PAUSED, None

    def resume(self, now: float) -> None:
        self.forget_pause()
        if self.status != Status.PAUSED:
            return
        assert self.before is not None
        (status, due), self.before = self.before, None
        if status == Status.PARKED and self.inbox:
            status = Status.READY
        if status == Status.SCHEDULED and (due is None or due <= now):
            status = Status.READY
        self.status, self.due = status, None if status == Status.READY else due


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.runs: dict[str, Model] = {}
        self.uids = self.started = 0
        self.bench: Bench
        self.session: Session
        self.do(self.open())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def open(self) -> None:
        bench = await open_bench(Path(self.folder.name) / "runs.db", clock=self.clock)
        bench.count = self.started  # the nonces of one test are all different
        self.bench = bench
        self.session = await self.bench.session()

    def teardown(self) -> None:
        try:
            assert self.do(self.bench.store.doctor()) == []
            self.do(self.bench.store.close())
        finally:
            self.runner.close()
            self.folder.cleanup()

    def promote(self) -> None:
        for model in self.runs.values():
            if model.due is not None and model.due <= self.clock.now():
                model.ready()

    @rule(id=IDS, delay=st.sampled_from([None, 0.0, 5.0]))
    def start(self, id: str, delay: float | None) -> None:
        due = None if delay is None else self.clock.now() + delay
        started = self.do(self.bench.start(id, due=due))
        assert started.created == (id not in self.runs)
        if started.created:
            model = self.runs[id] = Model(started.run, Status.READY)
            if delay:
                model.status, model.due = Status.SCHEDULED, due

    @rule(limit=st.integers(1, 3))
    def claim(self, limit: int) -> None:
        self.promote()
        found = self.do(self.bench.claim(self.session, limit))
        ready = [id for id, model in self.runs.items() if model.status == Status.READY]
        ready.sort(key=lambda id: self.runs[id].run)
        assert [run.id for run in found.runs] == ready[:limit]
        for run in found.runs:
            model = self.runs[run.id]
            model.status, model.fence = Status.RUNNING, model.fence + 1
            assert run.fence == model.fence
            assert len(run.journal) == model.journal
            assert [row.uid for row in run.inbox] == model.inbox

    def held(self, id: str, fence: int) -> bool:
        model = self.runs[id]
        return model.status == Status.RUNNING and fence == model.fence

    def attempt(self, id: str, fence: int, work: Coroutine[Any, Any, Any]) -> bool:
        """Whether the verb was accepted, which it must be just if the claim is current."""
        try:
            self.do(work)
        except StaleFence:
            assert not self.held(id, fence)
            return False
        assert self.held(id, fence)
        return True

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), fence=st.integers(1, 3))
    def append(self, data: st.DataObject, fence: int) -> None:
        id = data.draw(st.sampled_from(sorted(self.runs)))
        model = self.runs[id]
        verb = Append(model.run, fence, [self.bench.record(model.journal)])
        if self.attempt(id, fence, self.bench.store.do(verb)):
            model.journal += 1

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), delay=st.sampled_from([None, 3.0]))
    def park(self, data: st.DataObject, delay: float | None) -> None:
        id = data.draw(st.sampled_from(sorted(self.runs)))
        model = self.runs[id]
        if model.status != Status.RUNNING:
            return
        due = None if delay is None else self.clock.now() + delay
        rows = self.do(self.bench.park(model.run, model.fence, due))
        assert [row.uid for row in rows] == model.inbox
        if model.asked("pause"):
            self.do(self.bench.store.do(Reschedule(model.run, model.fence, None)))
            model.rest(Status.READY)
        elif rows:
            taken = rows[0]
            record = self.bench.record(model.journal, "", kind=3)
            verb = Append(model.run, model.fence, [record], absorbed=[taken.id])
            self.do(self.bench.store.do(verb))
            model.journal += 1
            model.inbox.remove(taken.uid)
        else:
            model.status, model.due = Status.PARKED, due

    @precondition(lambda self: self.runs)
    @rule(
        data=st.data(),
        fence=st.integers(1, 3),
        status=st.sampled_from([Status.COMPLETED, Status.FAILED]),
    )
    def finish(self, data: st.DataObject, fence: int, status: Status) -> None:
        id = data.draw(st.sampled_from(sorted(self.runs)))
        model = self.runs[id]
        self.uids += 1
        value = str(self.uids).encode()
        verb = Finish(model.run, fence, status, value, self.clock.now())
        if self.attempt(id, fence, self.bench.store.do(verb)):
            model.status = status

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), delay=st.sampled_from([None, 4.0]))
    def give_back(self, data: st.DataObject, delay: float | None) -> None:
        id = data.draw(st.sampled_from(sorted(self.runs)))
        model = self.runs[id]
        if model.status != Status.RUNNING:
            return
        due = None if delay is None else self.clock.now() + delay
        self.do(self.bench.store.do(Reschedule(model.run, model.fence, due)))
        if due is None or model.asked("cancel"):
            model.rest(Status.READY)
        else:
            model.rest(Status.SCHEDULED, due)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), status=st.sampled_from([Status.HELD, Status.STUCK]))
    def settle(self, data: st.DataObject, status: Status) -> None:
        id = data.draw(st.sampled_from(sorted(self.runs)))
        model = self.runs[id]
        if model.status != Status.RUNNING:
            return
        self.do(self.bench.store.do(Settle(model.run, model.fence, status, b"")))
        model.status = status
        if status == Status.HELD and model.asked("cancel"):
            model.ready()

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), action=st.sampled_from(["pause", "resume", "retry"]))
    def ask(self, data: st.DataObject, action: str) -> None:
        id = data.draw(st.sampled_from(sorted(self.runs)))
        model = self.runs[id]
        self.uids += 1
        uid = f"{action}-{self.uids}"
        verb = Ask(id, uid, action, "", "", self.clock.now())
        stands = model.status
        try:
            answer = self.do(self.bench.store.do(verb))
        except RequestRefused:
            assert not self.may(model, action)
            return
        assert self.may(model, action)
        if action == "pause" and stands == Status.RUNNING:
            if not model.asked("pause"):
                model.inbox.append(uid)
        elif action == "pause" and stands != Status.PAUSED:
            model.pause(stands, model.due)
        elif action == "resume" and stands in (Status.RUNNING, Status.PAUSED):
            model.resume(self.clock.now())
        elif action != "pause":
            model.forget_pause()
            model.ready()
            model.fence += stands.terminal
            model.inbox += [uid] if action == "retry" else []
        assert answer == model.status
        assert self.do(self.bench.store.do(verb)) == model.status

    def may(self, model: Model, action: str) -> bool:
        status = model.status
        if action == "pause":
            resting = status.terminal or status in (Status.HELD, Status.STUCK)
            return not resting and not model.asked("cancel")
        if action == "resume":
            return status in (Status.STUCK, Status.PAUSED) or (
                status == Status.RUNNING and model.asked("pause")
            )
        return status in (Status.HELD, Status.FAILED)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def terminate(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.runs)))
        model = self.runs[id]
        self.uids += 1
        verb = Terminate(id, f"terminate-{self.uids}", b"", self.clock.now())
        answer = self.do(self.bench.store.do(verb))
        if not model.status.terminal:
            model.status, model.due, model.before = Status.TERMINATED, None, None
            model.fence += 1
            model.forget_pause()
        assert (answer.status, answer.more) == (model.status, False)
        assert self.do(self.bench.store.do(verb)) == answer

    @rule(id=IDS)
    def signal(self, id: str) -> None:
        self.uids += 1
        uid = f"signal-{self.uids}"
        model = self.runs.get(id)
        try:
            self.do(self.bench.signal(id, uid))
        except (RunNotFound, RunEnded):
            assert model is None or model.status.terminal
            return
        assert model is not None
        model.inbox.append(uid)
        if model.status == Status.PARKED:
            model.ready()

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.runs)))
        model = self.runs[id]
        self.uids += 1
        uid = f"cancel-{self.uids}"
        status = self.do(self.bench.store.do(CancelRun(id, uid, b"", self.clock.now())))
        if not model.status.terminal:
            if model.fence == 0:
                model.status, model.due, model.before = Status.CANCELLED, None, None
            else:
                model.forget_pause()
                model.inbox.append(uid)
                if model.status in (Status.PARKED, Status.SCHEDULED, Status.PAUSED, Status.HELD):
                    model.ready()
                    model.before = None
        assert status == model.status

    @rule(seconds=st.sampled_from([1.0, 4.0]))
    def move_clock(self, seconds: float) -> None:
        self.clock.move(seconds)
        self.do(self.bench.claim(self.session, 0))
        self.promote()

    @rule()
    def restart(self) -> None:
        self.started = self.bench.count
        self.do(self.bench.store.close())
        for model in self.runs.values():
            if model.status in (Status.RUNNING, Status.STUCK):
                model.rest(Status.READY)  # the new worker may have code for what is stuck
        self.do(self.open())
        self.promote()

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert self.do(self.bench.store.doctor()) == []

    @invariant()
    def the_store_is_as_the_model_says(self) -> None:
        for id, model in self.runs.items():
            info = self.do(self.bench.store.info(id))
            assert info is not None
            assert (info.run, Status(info.status), info.fence) == (
                model.run,
                model.status,
                model.fence,
            )
            assert info.due == model.due


@pytest.mark.blocking  # a state machine is synchronous
def test_random_lives_are_as_the_model_says() -> None:
    run_state_machine_as_test(
        Lives,
        settings=settings(
            max_examples=25,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
