"""Test that the checks of the streams example find each fault.

They find nothing if there is no fault.
"""

import pytest
from streams_demo import checks
from streams_demo.checks import Mishap, Step
from streams_demo.legs import Aircraft

EXPECTED = {
    "N1": [Aircraft(1, 5, 1, 1, 1), Aircraft(2, 8, 2, 2, 1), Aircraft(3, 8, 0, 2, 1)],
    "N2": [Aircraft(1, 0, 0, 0, 1)],
}
PARTITIONS = {"N1": 0, "N2": 1}


def step(key, number, at=0.0, token=1, worker="w1", **changed):
    state = EXPECTED[key][number - 1]._replace(**changed)
    return Step(PARTITIONS[key], at, worker, token, key, state)


RIGHT = [step("N1", 1, 1.0), step("N1", 2, 2.0), step("N2", 1, 2.5), step("N1", 3, 3.0)]


def violations(steps):
    return checks.order_violations(steps, PARTITIONS.get)


def all_found(steps):
    return [
        *checks.duplicates(steps),
        *checks.lost(steps, EXPECTED),
        *violations(steps),
        *checks.stale(steps),
        *checks.wrong_states(steps, EXPECTED),
    ]


def test_nothing_is_found_where_nothing_is_wrong():
    assert all_found(RIGHT) == []


def test_leg_that_was_put_out_twice():
    assert checks.duplicates([*RIGHT, RIGHT[-1]]) == ["leg 3 of N1: 2 times"]


def test_leg_that_is_missing():
    assert checks.lost(RIGHT[:1] + RIGHT[2:], EXPECTED) == ["leg 2 of N1"]


def test_aircraft_that_is_missing_altogether():
    assert checks.lost(RIGHT[:2] + RIGHT[3:], EXPECTED) == ["leg 1 of N2"]


def test_leg_after_a_later_one():
    swapped = [RIGHT[1], RIGHT[0], *RIGHT[2:]]
    assert violations(swapped) == ["leg 1 of N1 by w1 after leg 2"]
    assert checks.duplicates(swapped) == []


def test_leg_in_a_partition_that_is_not_its_own():
    stray = Step(1, 0.0, "w1", 1, "N1", EXPECTED["N1"][0])
    assert violations([stray]) == ["leg 1 of N1 in partition 1"]


def test_output_after_one_with_a_greater_token():
    steps = [step("N1", 1, token=7), step("N2", 1, token=5), step("N1", 2, token=6, worker="w2")]
    assert checks.stale(steps) == ["partition 0: w2 wrote with 6 after 7"]


def test_state_that_differs_from_the_plain_pass():
    [fault] = checks.wrong_states([step("N1", 2, delay=13)], EXPECTED)
    assert fault.startswith("N1: Aircraft(number=2, delay=13,")


def test_leg_that_was_never_sent():
    made_up = Step(0, 0.0, "w1", 1, "N1", Aircraft(number=4))
    assert len(checks.wrong_states([made_up], EXPECTED)) == 1


OWNED = {0: [(3, "w1", 1.0), (7, "w2", 5.0)]}
KILLED = [Mishap(4.0, "w1", "killed")]
PUT_OUT = [step("N1", number, token=3) for number in (1, 2, 3)] + [step("N2", 1, token=7)]


def again(*numbers, token=7, key="N1", partition=0):
    return [(partition, token, "w2", key, number) for number in numbers]


def unexplained(again, happened=KILLED, window=3):
    return checks.unexplained_again(again, PUT_OUT, OWNED, happened, window)


def test_what_comes_again_after_a_kill_is_no_fault_within_the_window():
    assert unexplained(again(1, 2, 3)) == []


def test_more_than_the_window_is_a_fault():
    [fault] = unexplained(again(1, 2, 3), window=2)
    assert fault == "partition 0: 3 legs that were put out with token 3, more than 2"


def test_what_one_owner_left_may_come_again_to_several_and_counts_once():
    """Uncommitted legs may come again to several owners, and count once.

    The next owner had to give the partition up before it had processed the rest.
    """
    some = again(1, 2) + again(2, 3, token=9)
    assert unexplained(some) == []
    assert len(unexplained(some, window=2)) == 1


def test_what_comes_again_after_a_deploy_is_a_fault():
    [fault] = unexplained(again(1), [Mishap(4.0, "w1", "deploy")])
    assert fault == "partition 0: 1 legs that were put out with token 3, but w1 ended well"


def test_repeated_leg_of_a_later_owner_is_not_explained_by_an_earlier_end():
    """The end of an earlier owner does not explain a later one's leg."""
    [fault] = unexplained(again(1, key="N2", token=9))
    assert "token 7, but w2 ended well" in fault


def test_what_comes_again_without_ever_having_been_put_out_is_a_fault():
    [fault] = unexplained(again(7))
    assert "nobody was granted" in fault


def test_freeze_before_the_grant_explains_nothing():
    assert len(unexplained(again(1), [Mishap(0.5, "w1", "frozen")])) == 1


@pytest.mark.parametrize("why", ["member 'w1' lost its session: x", "the last commit of legs/0"])
def test_owner_with_an_overrun_may_leave_uncommitted_legs(why):
    """An owner that reported an overrun may leave uncommitted legs."""
    warnings = [{"at": 4.0, "member": "w1", "what": "warned", "why": why}]
    assert unexplained(again(1), checks.overruns(warnings)) == []


def test_other_warnings_explain_nothing():
    warnings = [{"at": 4.0, "member": "w1", "what": "warned", "why": "etcd is slow"}]
    assert checks.overruns(warnings) == []


def test_owners_are_read_from_the_grants_of_one_processor():
    def granted(processor, token, member, at):
        return {
            "what": "granted", "processor": processor, "partition": 0, "token": token,
            "member": member, "at": at,
        }  # fmt: skip

    events = [granted("plain", 7, "w2", 5.0), granted("exact", 4, "w9", 0.0)]
    assert checks.owners([*events, granted("plain", 3, "w1", 1.0)], "plain") == OWNED


def gaps(mishaps, earlier_at=1.0, later_at=4.0):
    steps = [
        step("N1", 1, earlier_at, token=1, worker="w1"),
        step("N1", 2, later_at, token=2, worker="w2"),
    ]
    return checks.gaps(steps, mishaps)


def test_gap_is_told_by_what_ended_the_owner():
    assert gaps([Mishap(2.0, "w1", "killed")]) == {"killed": [3.0]}
    assert gaps([Mishap(2.0, "w1", "frozen")]) == {"frozen": [3.0]}
    assert gaps([Mishap(0.5, "w1", "deploy")]) == {"deploy": [3.0]}  # it finished its work
    assert gaps([Mishap(2.0, "w9", "killed")]) == {"rebalanced": [3.0]}


def test_freeze_that_was_over_before_ends_no_owner():
    assert gaps([Mishap(0.5, "w1", "frozen")]) == {"rebalanced": [3.0]}


def test_what_happened_after_the_gap_did_not_cause_it():
    assert gaps([Mishap(5.0, "w1", "killed")]) == {"rebalanced": [3.0]}


def test_gaps_of_one_owner_are_from_batch_to_batch():
    steps = [step("N1", 1, 1.0), step("N1", 2, 1.0), step("N1", 3, 1.5)]
    assert checks.gaps(steps, []) == {"": [0.5]}
