"""Progress adds up over steps and parts, tells every end, and costs little however small the advances are."""

from assay.impl.stores.steps import Steps


def test_a_step_is_told_from_its_begin_to_its_end_and_not_at_every_byte() -> None:
    told: list[tuple[str, int, int]] = []
    steps = Steps(lambda *step: told.append(step))
    for name, total in (("one", 100_000), ("two", 7)):
        steps.begin(name, total)
        for _ in range(total):
            steps.advance(1)
    assert [one for one in told if one[1] in {0, one[2]}] == [
        ("one", 0, 100_000), ("one", 100_000, 100_000), ("two", 0, 7), ("two", 7, 7)
    ]  # fmt: skip
    assert 400 < len([one for one in told if one[0] == "one"]) < 600


def test_parts_of_a_step_add_up() -> None:
    told: list[tuple[str, int, int]] = []
    steps = Steps(lambda *step: told.append(step))
    steps.begin("verify", 30)
    for done in (4, 10):
        steps.part()(done, 10)  # each part begins anew
    second = steps.part()
    second(9, 16)
    second(16, 16)
    assert [done for _, done, _ in told] == [0, 4, 14, 23, 30]


def test_without_a_display_nothing_is_told() -> None:
    steps = Steps()
    steps.begin("x", 1)
    steps.advance(1)
