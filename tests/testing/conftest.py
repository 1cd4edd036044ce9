import pytest

pytest.register_assert_rewrite("etcd_contract")
