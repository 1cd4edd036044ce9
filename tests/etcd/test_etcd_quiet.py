"""gRPC's own log lines are off, unless the user asks for them."""

import os
import subprocess
import sys

import pytest

CODE = "import os, rink.etcd.client; print(os.environ.get('GRPC_VERBOSITY'))"


@pytest.mark.parametrize(
    ("given", "verbosity"),
    [
        ({}, "NONE"),
        ({"GRPC_VERBOSITY": "INFO"}, "INFO"),
        ({"GRPC_TRACE": "http"}, "None"),  # which would say nothing with a verbosity of NONE
    ],
)
def test_import_of_rink_sets_verbosity_of_grpc_unless_given(given, verbosity):
    env = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    ran = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**env, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == f"{verbosity}\n"
