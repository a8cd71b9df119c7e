"""Says who kept the event loop from everybody else: a turn of a step, or of workflow code.

Each turn is measured, so that the log names the one that blocked; a timer that comes late would
only know which steps were running.
"""

from __future__ import annotations

from time import perf_counter

from stepwell_runtime.log import log
from stepwell_runtime.scope import JobScope

clock = perf_counter

STEP_TURN = 0.25
WORKFLOW_TURN = 0.1


def step_blocked(scope: JobScope, seconds: float) -> None:
    """Log that one turn of an async step took longer than STEP_TURN."""
    log.warning(
        "loop_blocked",
        step=scope.name,
        run=scope.run_id,
        path=scope.path,
        seconds=round(seconds, 3),
        hint="write it as a plain `def`, which runs in a thread, or await asyncio.to_thread(...)",
    )


def workflow_blocked(run: str, workflow: str, seconds: float) -> None:
    """Log that workflow code took longer than WORKFLOW_TURN between two durable operations."""
    log.warning(
        "loop_blocked",
        workflow=workflow,
        run=run,
        seconds=round(seconds, 3),
        hint="do it in a @step, so that neither it nor a replay of it holds up other runs",
    )
