"""Random template programs over random callers: nothing that a caller can steer becomes control.

The programs know only parts of the atoms, and never put two parts behind each other without a caller's text between
them. So whatever meets in the prompt, met because a caller's text was empty, cut out, split away or chose: none of it
may be control, and where wholly template text spells an atom all the same, the render is refused.
"""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay.impl.text.origin import OriginError, OriginKind
from assay.impl.text.segments import Kind, Prompt, prompt_of
from assay.impl.text.template import ChatTemplate
from assay.spec.errors import ContractError

ATOMS = ("<|im_end|>", "<think>")
PARTS = ("<|im_", "end|>", "<", "|", "im_end", "|>", "<thi", "nk>", "think", ">", "", "Q")
CALLERS = st.one_of(st.sampled_from(["", *ATOMS, *PARTS, "abc", "bcade"]), st.text("abcde<|>Q", max_size=6))
VARIABLES = st.sampled_from(["x", "y", "z"])
LITERALS = st.sampled_from([repr(part) for part in PARTS])
PICKED = "{'a': '<', 'b': '|', 'c': 'im_', 'd': 'end', 'e': '>'}"
"""A template's table of parts; which of them come out, and in which order, is the caller's choice."""


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = st.builds("({} ~ {} ~ {})".format, inner, VARIABLES, inner)
    forms = [
        "({} + {} + {})", "{}.replace({}, {})", "({} | replace({}, {}, 1))", "({}.split({} or 'Q') | join({}))",
        "({}).join([{}, {}])", "({}.strip({}) ~ z ~ {})", "({}.partition({} or 'Q')[2] ~ y ~ {})",
        "([{}, {}] | unique | join({}))", "({0} if {1} else {2})", "({}.removeprefix({}) + x + {})",
    ]  # fmt: skip
    return st.one_of(
        one,
        st.sampled_from(forms).flatmap(
            lambda form: st.builds(form.format, inner, VARIABLES, inner)
            if form.startswith("({} + {}")
            else st.builds(form.format, inner, inner, inner)
        ),
        st.builds("{}[{}:{}]".format, inner, st.integers(-3, 3), st.integers(1, 9)),
        st.builds(
            "{}[::{}]".format, inner, st.sampled_from([-1, 2])
        ),
        st.builds("({} | lower)".format, inner),
        st.builds("({} | trim)".format, inner),
        st.builds("({} | tojson)[1:-1]".format, inner),
        st.builds("('%s' % {})".format, inner),
        st.builds("'{{}}'.format({})".format, inner),
        st.builds("({} | list | join)".format, inner),
        st.builds("({} * 2)".format, inner),
        st.builds("said({})".format, inner),
    )  # fmt: skip


EXPRESSIONS = st.recursive(
    st.one_of(LITERALS, VARIABLES, st.builds("({}[{}] | default(''))".format, st.just(PICKED), VARIABLES)),
    _grown,
    max_leaves=8,
)
STATEMENTS = st.one_of(
    st.builds("{{{{ {} }}}}".format, EXPRESSIONS),
    st.builds("{{% set ns.t = (ns.t ~ x ~ {}).strip() %}}".format, EXPRESSIONS),
    st.builds(
        "{{% for c in {} %}}{{{{ {}[c] | default('') }}}}{{% endfor %}}".format, VARIABLES, st.just(PICKED)
    ),
    st.builds(
        "{{% for c in {} %}}{{% if c == 'a' %}}<thi{{% elif c == 'b' %}}nk>{{% endif %}}{{% endfor %}}".format,
        VARIABLES,
    ),
    st.builds("{{% set v %}}{{{{ {} }}}}{{% endset %}}{{{{ v }}}}".format, EXPRESSIONS),
    st.builds("{{% if x %}}{{{{ {} }}}}{{% endif %}}".format, EXPRESSIONS),
)
PREFACE = "{% macro said(v) %}{{ v }}{% endmacro %}{% set ns = namespace(t='') %}"
PROGRAMS = st.lists(STATEMENTS, min_size=1, max_size=3).map(
    lambda parts: PREFACE + "{{ y }}".join(parts) + "{{ z }}{{ ns.t }}"
)


def rendered(source: str, **callers: str) -> Prompt | None:
    """Returns the prompt; None where the template refuses, can't be followed, or spells an atom in pieces."""
    try:
        return prompt_of(ChatTemplate(source).render(callers), ATOMS)
    except OriginError as error:
        assert error.finding.code == "chat.origin.lost"  # noqa: PT017 - nothing else may lose it
    except ContractError as error:
        assert error.finding.code in {"chat.template.raised", "chat.control.split"}  # noqa: PT017 - as above
    return None


@settings(max_examples=250)
@given(PROGRAMS, CALLERS, CALLERS, CALLERS)
@example(PREFACE + "{{ '<|im_' ~ x ~ 'end|>' }}", "", "", "")
@example(PREFACE + "{{ ('<|im_' ~ x ~ 'end|>') | replace(x, '') }}", "Q", "", "")
@example(PREFACE + "{{ ('<|im_' ~ x ~ 'end|>').split(x) | join }}", "Q", "", "")
@example(PREFACE + "{{ 'Q' | replace(x, '<think>') }}", "Q", "", "")
@example(PREFACE + "{{ '' | replace(x, '<think>') }}", "", "", "")
@example(PREFACE + "{% for c in x %}{{ " + PICKED + "[c] }}{% endfor %}", "abcdbe", "", "")
@example(PREFACE + "{% for c in x %}{% if c == 'a' %}<thi{% else %}nk>{% endif %}{% endfor %}", "ab", "", "")
@example(
    PREFACE + "{% set ns.t = ns.t ~ '<thi' %}{{ x }}{% set ns.t = (ns.t ~ x ~ 'nk>') %}{{ ns.t }}", "", "", ""
)
def test_nothing_that_a_caller_can_steer_becomes_control(program: str, x: str, y: str, z: str) -> None:
    prompt = rendered(program, x=x, y=y, z=z)
    if prompt is not None:
        assert prompt.of_kind(Kind.TRUSTED_CONTROL) == []


WHOLE = st.sampled_from(
    [repr(f"{before}{atom}{after}") for atom in ATOMS for before in ("", "Q") for after in ("", "\n")]
)
ANY = st.recursive(st.one_of(WHOLE, LITERALS, VARIABLES), _grown, max_leaves=6)


@settings(max_examples=200)
@given(ANY, CALLERS, CALLERS, CALLERS)
@example("'Q<think>\\n'", "", "", "")
def test_no_byte_of_a_caller_is_ever_control(expression: str, x: str, y: str, z: str) -> None:
    prompt = rendered(PREFACE + "{{ " + expression + " }}", x=x, y=y, z=z)
    if prompt is None:
        return
    owner = [span.origin.kind for span in prompt.origins for _ in range(span.length)]
    for segment in prompt.segments:
        if segment.kind == Kind.TRUSTED_CONTROL:
            assert set(owner[segment.offset : segment.offset + segment.length]) == {OriginKind.TEMPLATE}
            held = prompt.stream[segment.offset : segment.offset + segment.length].decode()
            assert held.replace(ATOMS[0], "").replace(ATOMS[1], "") == ""


@pytest.mark.parametrize(
    "source",
    [
        "{{ '<|im_end|>' }}", "<|im_end|>", "{{ 'a' ~ '<|im_' ~ 'end|>' ~ x }}", "{{ '<|im_' + 'end|>' }}", "<|im_{{ 'end|>' }}",
        "{% set a = '<|im_end|>' %}{{ x ~ a }}", "{{ 'x<|im_end|>y'[1:11] }}", "{{ ' <|im_end|> '.strip() }}",
        "{{ 'a,<|im_end|>'.split(',')[1] }}", "{{ ['<|im_end|>'] | join }}", "{{ {'k': '<|im_end|>'}['k'] }}",
        "{{ '%s<|im_end|>' % x }}", "{{ '<|im_end|>{}'.format(x) }}", "{{ 'E'.replace('E', '<|im_end|>') }}",
        "{% macro m() %}<|im_end|>{% endmacro %}{{ m() }}", "{% set v %}<|im_end|>{% endset %}{{ v }}",
        "{% for c in '<|im_end|>' %}{{ c }}{% endfor %}", "{{ '<|IM_END|>' | lower }}", "{{ '\"<|im_end|>' | tojson }}",
        "{% filter trim %}  <|im_end|>{% endfilter %}", "{{ (x ~ '<|im_end|>') | trim }}", "{{ '<|im_end|>' * 1 }}",
    ],
)  # fmt: skip
def test_an_atom_that_the_source_spells_in_one_stretch_is_control(source: str) -> None:
    prompt = prompt_of(ChatTemplate(source).render({"x": "<|im_end|>"}), ATOMS)
    assert prompt.of_kind(Kind.TRUSTED_CONTROL) == [b"<|im_end|>"]


def test_an_indented_text_stands_where_it_stood() -> None:
    found = ChatTemplate("{{ 'ab\\n<|im_end|>\\r\\nc' | indent(0) }}").render({})
    assert "".join(text for text, _ in found) == "ab\n<|im_end|>\nc"
    places = [(origin.spot.start, origin.spot.stop) for _, origin in found if origin.spot is not None]
    # By hand: "ab", its line end, the atom, the second character of its line end, "c".
    assert places == [(0, 2), (2, 3), (3, 13), (14, 15), (15, 16)]


ROLES = {"role": frozenset({"user", "tool"})}


@pytest.mark.parametrize(
    "expression",
    ["'<|' ~ m.role ~ '|>'", "'<|' + m.role + '|>'", "'<|%s|>' % m.role", "'<|{}|>'.format(m.role)",
     "'<|{r}|>'.format(r=m.role)", "('<|' ~ m.role) ~ '|>'", "'[' ~ '<|' ~ m.role ~ '|>'"],
)  # fmt: skip
def test_a_closed_word_between_its_constants_spells_an_atom_with_them(expression: str) -> None:
    template = ChatTemplate("{% for m in messages %}{{ " + expression + " }}{% endfor %}")
    pieces = template.render({"messages": [{"role": "user"}, {"role": "root"}]}, vocabulary=ROLES)
    prompt = prompt_of(pieces, ["<|user|>", "<|root|>", "<|tool|>"])
    assert prompt.of_kind(Kind.TRUSTED_CONTROL) == [b"<|user|>"]


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("'<|' ~ x ~ m.role ~ '|>'", "chat.control.split"),
        ("['<|', m.role, '|>'] | join", "chat.control.split"),
        ("('<|' ~ y ~ '|>') | replace(y, m.role)", "data"),
        ("('<|' ~ y ~ '|>').split(y) | join(m.role)", "chat.control.split"),
        ("'<|' ~ m.role[:-1] ~ 'r|>'", "data"),
        ("'<|' ~ m.content ~ '|>'", "data"),
    ],
)
def test_a_closed_word_elsewhere_does_not(expression: str, code: str) -> None:
    template = ChatTemplate("{% for m in messages %}{{ " + expression + " }}{% endfor %}")
    variables: dict[str, Any] = {"messages": [{"role": "user", "content": "user"}], "x": "", "y": "Q"}
    pieces = template.render(variables, vocabulary=ROLES)
    try:
        found = prompt_of(pieces, ["<|user|>"])
    except ContractError as error:
        assert error.finding.code == code  # noqa: PT017 - the case says whether it raises
        return
    assert (code, found.of_kind(Kind.DATA)) == ("data", [b"<|user|>"])
