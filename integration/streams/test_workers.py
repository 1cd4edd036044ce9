"""Hold workers to their contracts on real servers, in real time."""

import pytest
from admin_contract import *  # noqa: F403
from careful_contract import *  # noqa: F403
from dead_letters_contract import *  # noqa: F403
from failures_contract import *  # noqa: F403
from hasher_contract import *  # noqa: F403
from held_bytes_contract import *  # noqa: F403
from hooks_contract import *  # noqa: F403
from layout_contract import *  # noqa: F403
from offsets_contract import *  # noqa: F403
from pauses_contract import *  # noqa: F403
from retention_contract import *  # noqa: F403
from trouble_contract import *  # noqa: F403
from workers_contract import *  # noqa: F403

pytestmark = pytest.mark.deep
