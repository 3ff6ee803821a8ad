import pytest

from focusfl.deploy.faults.chaos import Event, parse


def test_a_spec_says_what_goes_wrong():
    chaos = parse("drop=0.2, node=3,superlink=1,server@11,disk:2@14,seed=7")
    assert (chaos.drop, chaos.delay, chaos.seed, chaos.within) == (0.2, 0.0, 7, True)
    plan = chaos.plan(30, 4)
    assert [event.what for event in plan].count("node") == 3
    assert Event(11, "server", None) in plan and Event(14, "disk", 2) in plan
    assert plan == sorted(plan) and all(1 <= event.round < 30 for event in plan)


def test_the_same_seed_gives_the_same_plan_which_is_itself_a_spec():
    spec = "node=3,superlink=1,server=1,disk=2"
    plan = parse(spec).plan(60, 4)
    assert plan == parse(spec).plan(60, 4) != parse(spec + ",seed=1").plan(60, 4)
    assert parse(",".join(map(str, plan))).plan(60, 4) == plan
    assert parse("").plan(60, 4) == []


@pytest.mark.parametrize(
    "spec, message",
    [
        ("drpo=0.2", "Did you mean 'drop'?"),
        ("drop", "must be like drop=0.2"),
        ("drop=0.8,delay=0.3", "at most 1"),
        ("node@3", "node:1@5"),
        ("server:1@3", "server@8"),
        ("node=1.5", "must be like"),
        ("drop@3", "must be like"),
        ("spike@3", "must be like"),
        ("unmask@3", "must be like"),
    ],
)
def test_a_wrong_spec_is_one_clear_line(spec, message):
    with pytest.raises(ValueError, match=message.replace("?", "[?]")):
        parse(spec)


def test_nothing_can_be_put_back_that_was_not_copied():
    with pytest.raises(ValueError, match="restore@3 must come after a backup"):
        parse("restore@3,backup@5").plan(10, 4)
    whole = parse("backup@2,restore@3,spike:1@4,full:0@5,pause:2@6").plan(10, 4)
    assert [event.what for event in whole] == [
        "backup", "restore", "spike", "full", "pause"
    ]  # fmt: skip


def test_a_site_that_does_not_exist_cannot_be_hit():
    with pytest.raises(ValueError, match="4 sites"):
        parse("node:4@3").plan(10, 4)


def test_a_site_dies_within_a_stage_of_secure_sums_and_of_no_others():
    chaos = parse("unmask:3@9,keys=2")
    assert chaos.within and Event(9, "unmask", 3) in chaos.plan(30, 4)
    chaos.check_stages(secure=True)
    parse("node=1,drop=0.1").check_stages(secure=False)
    with pytest.raises(ValueError, match="keys is a stage of secure sums; add --sec"):
        chaos.check_stages(secure=False)
