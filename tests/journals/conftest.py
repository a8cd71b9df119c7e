from tests.behaviour.conftest import address as address
from tests.behaviour.conftest import anyio_backend as anyio_backend
