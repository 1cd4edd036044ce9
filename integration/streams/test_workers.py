"""Hold workers to their contracts on real servers, in real time."""

import pytest
from workers_contract import *  # noqa: F403

pytestmark = pytest.mark.deep
