"""A template that would not end, or would fill the memory, is refused by the line that asks for it."""

import pytest

from assay.impl.text.budget import MAX_CHARACTERS, MAX_STEPS, Meter, spend
from assay.impl.text.origin import OriginError
from assay.impl.text.template import MAX_TEMPLATE_CHARACTERS, ChatTemplate
from assay.spec.errors import ContractError

FEW = 50_000
"""Steps of these renders, so that the tests are quick."""
HOSTILE = {
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}": "steps",
    "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}": "steps",
    "{% for a in range(9999) %}{% set x = range(99999) | list %}{% endfor %}": "steps",
    "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}": "RecursionError",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}": "RecursionError",
    "{{ ('ab' * 9999) * 9999999 }}": "repetition",
    "{% set ns = namespace(t='ab') %}{% for a in range(64) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}": "concatenation",
    "{% set ns = namespace(t='ab' * 40000) %}{% for a in range(99999) %}{% set x = ns.t ~ a %}{% endfor %}": "steps",
    "{% set t = 'ab' * 40000 %}{% for a in range(99999) %}{% set x = t.upper() %}{% endfor %}": "steps",
    "{% set t = 'ab' * 2000 %}{% for a in range(99999) %}{% set x = t | list %}{% endfor %}": "steps",
    "{% set t = 'a ' * 2000 %}{% for a in range(99999) %}{% set x = t.split() %}{% endfor %}": "steps",
    "{% set t = 'ab' * 2000 %}{% for a in range(99999) %}{% set x = t[::-1] %}{% endfor %}": "steps",
    "{% set ns = namespace(n=3) %}{% for a in range(64) %}{% set ns.n = ns.n * ns.n %}{% endfor %}": "*",
    "{{ 2 ** 1000000 }}": "**",
    "{{ ([0] * 999999999) | length }}": "*",
    "{% set ns = namespace(a=[0]) %}{% for i in range(64) %}{% set ns.a = ns.a + ns.a %}{% endfor %}": "steps",
    "{% set ns = namespace(a=['x']) %}{% for i in range(64) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a | tojson }}": "steps",
    "{% set ns = namespace(a=['x'], b=['x']) %}{% for i in range(64) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}": "steps",
    "{{ 'a'.ljust(99999999999) }}": "ljust",
    "{{ 'a' | center(99999999999) }}": "center",
    "{{ 'a\\n' | indent(99999999999) }}": "indent",
    "{{ [1] | tojson(indent=99999999999) }}": "tojson",
    "{{ 1.5 | round(999999999, 'ceil') }}": "round",
    "{{ [1] | batch(99999999999, 0) | list }}": "batch",
    "{{ [1] | slice(99999999999) | list }}": "slice",
}  # fmt: skip


@pytest.mark.parametrize("source", HOSTILE)
def test_a_template_that_asks_for_too_much_is_refused(source: str) -> None:
    with pytest.raises(OriginError) as caught:
        ChatTemplate("\n" + source, max_steps=FEW).render({})
    found = caught.value.finding
    assert found.code == "chat.template.budget"
    assert HOSTILE[source] in (found.where.removeprefix("line 2: "), found.got)
    assert found.where.startswith("line 2")


def test_a_refusal_of_the_budget_can_not_be_swallowed() -> None:
    source = "{{ ('a'.ljust(99999999999)) is iterable }}{{ 'fine' }}"
    with pytest.raises(OriginError) as caught:
        ChatTemplate(source).render({})
    assert caught.value.finding.code == "chat.template.budget"


@pytest.mark.parametrize(
    "source",
    ["{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{{ " + "-" * 5000 + "1 }}", "{{ 1" + " + 1" * 5000 + " }}",
     "{% if a %}" * 300 + "{% endif %}" * 300, "a" * (MAX_TEMPLATE_CHARACTERS + 1), "{{ " + "9" * 5000 + " }}"],
    ids=["brackets", "signs", "sum", "blocks", "long", "digits"],
)  # fmt: skip
def test_a_template_that_no_compiler_follows_is_refused(source: str) -> None:
    with pytest.raises(ContractError) as caught:
        ChatTemplate(source)
    assert (caught.value.finding.code, caught.value.finding.where) == ("chat.template.syntax", "template")


def test_an_honest_accumulator_over_many_messages_stays_within_the_budget() -> None:
    turns = [{"role": "user", "content": f"message {number} " * 8} for number in range(500)]
    source = "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = (ns.t ~ m.content).strip() ~ '\n' %}{% endfor %}{{ ns.t }}"
    pieces = ChatTemplate(source).render({"messages": turns})
    assert sum(len(text) for text, _ in pieces) == sum(len(turn["content"].strip()) + 1 for turn in turns)


def test_steps_outside_of_a_render_cost_nothing_and_a_render_has_its_own() -> None:
    spend(10 * MAX_STEPS)
    with Meter(1) as meter:
        spend(1)
        with pytest.raises(OriginError) as caught:
            spend(1)
    assert (caught.value.finding.code, caught.value.finding.where) == ("chat.template.budget", "steps")
    assert meter.left == -1
    assert MAX_CHARACTERS > 1_000_000
