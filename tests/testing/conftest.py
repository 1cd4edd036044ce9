import pytest

pytest.register_assert_rewrite("etcd_contract", "etcd_contract_streams", "etcd_world")
