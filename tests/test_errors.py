"""Test the public errors: their root, their text, their attributes."""

import copy
import pickle

import pytest

import rink
import rink.aio
from rink import errors

ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BaseException)
]

ATTRIBUTES = {
    rink.JoinError: {"member": "a"},
    rink.RoleError: {"role": "x", "group": "orders", "member": "a"},
    rink.RoleLost: {"role": "x", "group": "orders", "member": "a", "token": 17},
    rink.StaleToken: {"role": "x", "group": "orders", "member": "a", "token": 17, "newer": 21},
    rink.StateError: {"key": "rink/orders/"},
    rink.EtcdError: {"endpoints": ("http://h:2379",)},
}


def attributes_of(kind):
    return next((ATTRIBUTES[base] for base in kind.__mro__ if base in ATTRIBUTES), {})


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_has_the_one_root_and_is_public_on_both_faces(kind):
    assert issubclass(kind, rink.RinkError)
    assert [getattr(face, kind.__name__, None) for face in (rink, rink.aio)] == [kind, kind]


@pytest.mark.parametrize("kind", ERRORS)
def test_error_is_made_of_a_sentence_alone(kind):
    error = kind("what went wrong")
    assert (str(error), error.args) == ("what went wrong", ("what went wrong",))
    assert {name: bool(value) for name, value in vars(error).items()} == dict.fromkeys(
        attributes_of(kind), False
    )


@pytest.mark.parametrize("kind", ERRORS)
def test_what_code_may_act_on_stands_in_attributes_and_survives_a_pickle(kind):
    given = attributes_of(kind)
    error = kind("what went wrong", **given)
    for one in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(one) is kind
        assert (str(one), vars(one)) == ("what went wrong", given)


@pytest.mark.parametrize(
    ("kind", "builtin"), [(rink.RoleTimeout, TimeoutError), (rink.ConfigError, ValueError)]
)
def test_what_has_a_builtin_name_is_caught_by_it(kind, builtin):
    assert issubclass(kind, builtin)
