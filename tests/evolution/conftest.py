"""`bench`, of which the long journals are, is a program of the repository."""

import sys
from pathlib import Path

# At the end: before the standard library, the folder `queue` could be taken for its module.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.behaviour.conftest import _clear_stage as _clear_stage
from tests.behaviour.conftest import address as address
from tests.behaviour.conftest import anyio_backend as anyio_backend
from tests.behaviour.conftest import app as app
from tests.behaviour.conftest import make_app as make_app
