"""The test kit: an app of its own for each test, in virtual time, and tests that crash it.

Imported only by tests; it needs neither pytest nor anything else.
"""

from stepwell.testing._app import NeverAwaited, TestApp
from stepwell.testing._blocking import BlockingTestApp
from stepwell.testing._clock import NothingDue
from stepwell.testing._crash import CrashReport, Repeated, crash_test
from stepwell.testing._outcome import CancelAt, RunOutcome, SignalAt
from stepwell.testing._simulate import SimulationReport, simulate
from stepwell.testing._stubs import Stub, StubCall

__all__ = [
    "BlockingTestApp",
    "CancelAt",
    "CrashReport",
    "NeverAwaited",
    "NothingDue",
    "Repeated",
    "RunOutcome",
    "SignalAt",
    "SimulationReport",
    "Stub",
    "StubCall",
    "TestApp",
    "crash_test",
    "simulate",
]
