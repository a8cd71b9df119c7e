from tests.behaviour.conftest import _clear_stage as _clear_stage
from tests.behaviour.conftest import address as address
from tests.behaviour.conftest import anyio_backend as anyio_backend
from tests.behaviour.conftest import app as app
from tests.behaviour.conftest import make_app as make_app
