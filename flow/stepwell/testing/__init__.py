"""The test kit: an app of its own for each test, in virtual time, and tests that crash it.

Imported only by tests; it needs neither pytest nor anything else.
"""

from stepwell.testing._app import NeverAwaited, TestApp
from stepwell.testing._clock import NothingDue
from stepwell.testing._stubs import Stub, StubCall

__all__ = ["NeverAwaited", "NothingDue", "Stub", "StubCall", "TestApp"]
