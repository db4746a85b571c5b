"""The counter rule against values that a C program printed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracle_toys import assert_refused

from assay.oracles import ple, weights

EMBEDDING = "model.language_model.embed_tokens.weight"


def test_the_mixer_is_split_mix_64() -> None:
    """First outputs for the seeds 0 and 1234567, as published with the generator."""
    assert ple.split_mix(0) == 0xE220A8397B1DCDAF
    assert ple.split_mix(1234567) == 6457827717110365317


def test_roles_are_fnv_of_the_name() -> None:
    """Printed by a C program; the offset is the contract's own and not the usual one."""
    assert weights.role_of("") == 1469598103934665603
    assert weights.role_of("a") == 4953267810257967366
    assert weights.role_of(EMBEDDING) == 17988442813716740438


def test_values_of_a_named_tensor() -> None:
    """Printed by a C program, before and after rounding to BF16."""
    plain = weights.tensor(EMBEDDING, (2, 2), bf16=False)
    assert [f"{value:.9g}" for value in plain.ravel()] == [
        "-0.0122387698", "0.0839538574", "-0.0209875479", "-0.060106203",
    ]  # fmt: skip
    stored = weights.tensor(EMBEDDING, (2, 2))
    assert [f"{value:.9g}" for value in stored.ravel()] == [
        "-0.0122680664", "0.083984375", "-0.0209960938", "-0.0600585938",
    ]  # fmt: skip


def test_values_of_a_numbered_role() -> None:
    """Role 100 of the fixture, printed by a C program."""
    assert [f"{value:.9g}" for value in weights.values(100, 0, 3)] == [
        "0.0673278794",
        "0.101623535",
        "-0.0138647463",
    ]


def test_the_gated_norms_gain_is_stored_around_one() -> None:
    """Printed by a C program."""
    gain = weights.tensor("model.language_model.layers.0.linear_attn.norm.weight", (2,))
    assert gain.tolist() == [0.9921875, 0.88671875]


def test_a_tail_equals_the_end_of_the_whole() -> None:
    assert weights.values(7, 90, 10).tobytes() == weights.values(7, 0, 100)[90:].tobytes()


def test_rounding_to_bf16_is_to_nearest_even() -> None:
    """1 + 2^-8 lies between 1 and 1 + 2^-7: even is 1; 1 + 3 * 2^-8 goes up to 1 + 2^-6."""
    halves = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8], np.float32)
    assert weights.round_to_bf16(halves).tolist() == [1, 1 + 2**-6, 1 + 2**-7, -1]


@given(st.floats(-(2.0**100), 2.0**100, width=32))
def test_a_rounded_value_is_a_nearest_bf16(value: float) -> None:
    rounded = weights.round_to_bf16(np.array([value], np.float32))
    bits = int(rounded.view(np.uint32)[0])
    assert bits & 0xFFFF == 0
    neighbours = np.array([bits + 0x10000, max(bits - 0x10000, 0)], np.uint32).view(np.float32)
    distance = abs(float(rounded[0]) - value)
    assert all(distance <= abs(float(other) - value) for other in neighbours if np.isfinite(other))


def test_nothing_and_role_zero_may_be_asked() -> None:
    """Role 0, index 0: the mixer of the seed alone, printed by a C program."""
    assert weights.values(0, 0, 0).shape == (0,)
    assert f"{weights.values(0, 0, 1)[0]:.9g}" == "-0.0935595706"
    for name, arguments in (("role", (-1, 0, 1)), ("first", (0, -1, 1)), ("count", (0, 0, -1))):
        assert_refused("oracle.argument.domain", name, lambda arguments=arguments: weights.values(*arguments))


def test_a_role_beyond_64_bits_is_refused() -> None:
    assert_refused("oracle.argument.domain", "role", lambda: weights.values(2**64, 0, 1))


def rule(**arguments: object) -> list[str]:
    from assay.oracles.catalogue import rule_values

    return [f"{value:.9g}" for value in rule_values(**arguments)]


def test_the_operation_gives_stored_values_of_a_name_from_any_place() -> None:
    """The numbers of the tests above: rounded to BF16 unless told not to, one value unless told how many."""
    assert rule(name=EMBEDDING) == ["-0.0122680664"]
    assert rule(name=EMBEDDING, first=1, count=3) == ["0.083984375", "-0.0209960938", "-0.0600585938"]
    assert rule(name=EMBEDDING, first=2, bf16=False) == ["-0.0209875479"]
    assert rule(role=100, count=2, bf16=False) == ["0.0673278794", "0.101623535"]
    assert rule(role=100, first=2) == ["-0.0138549805"]
    assert rule(role=0, count=0) == []


def test_the_operation_is_asked_by_a_name_or_a_role_within_its_range() -> None:
    from assay.oracles.catalogue import rule_values

    for arguments in ({}, {"name": "a", "role": 1}):
        assert_refused("oracle.argument.domain", "name", lambda given=arguments: rule_values(**given))
    for name, value in (("count", -1), ("count", 2**24 + 1), ("first", -1), ("first", 2**63 + 1)):
        given = {"role": 1, name: value}
        assert_refused("oracle.argument.domain", name, lambda given=given: rule_values(**given))
    assert len(rule_values(name="a", first=2**63)) == 1


def test_an_index_beyond_64_bits_is_refused() -> None:
    assert_refused("oracle.argument.domain", "first", lambda: weights.values(1, 2**64, 1))
    assert weights.values(1, 2**64 - 1, 1).size == 1
