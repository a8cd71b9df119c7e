"""What clients were told must be so: each acknowledgement is looked up in the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stepwell_queue import History, RecordKind
from tests.crash.client import Line
from tests.crash.expected import RESULTS

ENDS: Mapping[str, object] = RESULTS | {"failing": "Declined", "withdrawn": "RunCancelled"}


def broken_promises(
    diary: list[Line], histories: list[History], runs: int, client_kills: int
) -> Iterable[str]:
    """Compare what a client wrote down, through all its lives, with what the store holds."""
    known = {history.run.id: history for history in histories}
    ended = [line.run for line in diary if line.said == "ended"]
    if len(set(ended)) != runs:
        yield f"{len(set(ended))} of {runs} runs ended"
    yield from (f"{line.run} ended as {line.value!r}" for line in diary if _is_wrong_end(line))
    yield from _strangely_created(diary, client_kills)
    for line in diary:
        history = known.get(line.run)
        if line.said == "starting":
            continue
        if history is None:
            yield f"{line.run} was {line.said}, and is not in the store"
        elif line.said == "told" and not _heard(history):
            yield f"{line.run} was told, and has not heard it"


def _is_wrong_end(line: Line) -> bool:
    return line.said == "ended" and line.value != ENDS[line.run.partition("-")[0]]


def _heard(history: History) -> bool:
    kinds = {record.kind for record in history.journal}
    if history.run.name == "asking":
        return RecordKind.SIGNAL in kinds
    return history.run.status_name == "cancelled"


def _strangely_created(diary: list[Line], client_kills: int) -> Iterable[str]:
    """Find runs that were created twice, or by nobody; what a dying client created is not known."""
    tries: dict[str, int] = {}
    acknowledged: set[str] = set()
    unknown: set[str] = set()
    for line in diary:
        if line.said == "starting":
            tries[line.run] = tries.get(line.run, 0) + 1
        elif line.said == "started":
            first = line.run not in acknowledged
            if line.value and not first:
                yield f"{line.run} was created twice"
            if not line.value and first:
                unknown.add(line.run)
                if tries[line.run] == 1:
                    yield f"{line.run} was there before it was started"
            acknowledged.add(line.run)
    # A client starts one run at a time.
    if len(unknown) > client_kills:
        yield f"{client_kills} kills left {sorted(unknown)} without a creator"
