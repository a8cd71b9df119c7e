"""One workflow run in the hands of a worker.

Replay, execute what it asks for, journal, park or end.
"""

from stepwell_runtime.activation._activation import Activation as Activation
from stepwell_runtime.activation._work import Work as Work

__all__ = ["Activation", "Work"]
