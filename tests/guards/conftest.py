import pytest

pytest.register_assert_rewrite("guards_worlds", "guards_contract", "guards_model")
