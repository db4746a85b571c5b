"""Any template: rendered with origins to the bytes of plain Jinja, or refused with a clear error."""

import inspect
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.filters import FILTERS

from assay.impl.text.environment import ProvenanceEnvironment
from assay.impl.text.origin import OriginError, OriginKind, Place
from assay.impl.text.rope import Piece
from assay.impl.text.segments import Kind, prompt_of
from assay.impl.text.template import ChatTemplate
from assay.spec.errors import ContractError

ROLES = {"role": frozenset({"system", "user", "assistant", "tool"})}
TURNS = [
    {"role": "system", "content": "  Be brief.  "},
    {"role": "user", "content": "<|x|>Hi, WORLD\nline two "},
    {"role": "assistant", "content": "ok", "tags": ["b", "a", "B"], "n": 3},
]


def pieces(source: str, **variables: Any) -> tuple[Piece, ...]:
    return ChatTemplate(source).render({"messages": TURNS, **variables}, vocabulary=ROLES)


def text(source: str, **variables: Any) -> str:
    return "".join(part for part, _ in pieces(source, **variables))


def by_kind(source: str, kind: OriginKind, **variables: Any) -> str:
    return "".join(part for part, origin in pieces(source, **variables) if origin.kind is kind)


# The expected text is written by hand; every rendering is held to plain Jinja besides.
FEATURES = {
    "{{ messages[1].content | trim }}": "<|x|>Hi, WORLD\nline two",
    "{{ messages[1].content[5:7] ~ messages[2].n }}": "Hi3",
    "{{ messages[1]['content'].split('\n')[1] }}": "line two ",
    "{{ messages[1].content.upper() }}": "<|X|>HI, WORLD\nLINE TWO ",
    "{{ messages[0].content.strip().replace('Be', 'Stay') }}": "Stay brief.",
    "{{ messages | map(attribute='role') | join('/') }}": "system/user/assistant",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}": "1",
    "{{ messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='content') | first }}": "ok",
    "{{ messages[2].tags | sort | join(',') }}|{{ messages[2].tags | unique | join }}": "a,b,B|ba",
    "{{ messages[2].tags | tojson }}": '["b", "a", "B"]',
    "{{ messages[2] | tojson(indent=1) }}": '{\n "role": "assistant",\n "content": "ok",\n "tags": [\n  "b",\n  "a",\n  "B"\n ],\n "n": 3\n}',
    "{% for m in messages[::-1] %}{{ loop.index0 }}{{ m.role[0] }}{% endfor %}": "0a1u2s",
    "{% for m in messages if m.role != 'system' %}{{ loop.revindex }}{{ m.role }} {% endfor %}": "2user 1assistant ",
    "{% for k, v in messages[0].items() %}{{ k }}={{ v | length }};{% endfor %}": "role=6;content=13;",
    "{% set ns = namespace(n=0, t='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.t = ns.t + m.role[:1] %}{% endfor %}{{ ns.n }}{{ ns.t }}": "3sua",
    "{% macro m(x, y='!') %}[{{ x }}{{ y }}]{% endmacro %}{{ m(messages[2].content) }}{{ m('a', y='b') }}": "[ok!][ab]",
    "{% macro w() %}<{{ caller('in') }}>{% endmacro %}{% call(x) w() %}{{ x }}{{ messages[2].content }}{% endcall %}": "<inok>",
    "{% set block %}a{{ messages[2].content }}{% endset %}{{ block }}{{ block | length }}": "aok3",
    "{% filter upper %}x{{ messages[2].content }}{% endfilter %}": "XOK",
    "{% for n in [1, 2] recursive %}{{ n }}{% if n == 2 %}{{ loop([3]) }}{% endif %}{% endfor %}": "123",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}": "user",
    "{% generation %}{{ messages[2].content }}{% endgeneration %}": "ok",
    "{{ 'a' if messages[2].missing is defined else 'b' }}{{ missing }}{{ missing | default('d') }}": "bd",
    "{{ '%s has %d' % (messages[2].content, 2) }} {{ '{} {n}'.format(messages[2].content, n=1) }}": "ok has 2 ok 1",
    "{{ [1, 2.5, true, none] | join(' ') }}": "1 2.5 True None",
    "{{ 'abc'[::-1] }}{{ 'a' * 3 }}{{ 'x' in 'axb' }}{{ 'b' > 'a' }}": "cbaaaaTrueTrue",
    "{{ '  a b '.lstrip() }}|{{ 'a-b-c'.rsplit('-', 1)[0] }}|{{ 'k=v'.partition('=')[2] }}": "a b |a-b|v",
    "{{ 'aabb'.split('ab') | tojson }}": '["a", "b"]',
    "{{ 'x' | center(5) }}|{{ 'ab'.ljust(4, '.') }}": "  x  |ab..",
    "{{ 'a\nb' | indent(2) }}|{{ 'a\nb' | indent(2, true) }}": "a\n  b|  a\n  b",
    "{{ dict(a=1, b='x') | tojson }}{{ range(3) | list | length }}": '{"a": 1, "b": "x"}3',
    "{{ 'caf\u00e9' | tojson(ensure_ascii=true) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}": '"caf\\u00e9"{"a": 2, "b": 1}',
    "{{ 1 is true }}{{ true is true }}{{ 0 is false }}{{ none is none }}{{ 'x'.__class__ }}": "FalseTrueFalseTrue",
    "{{ messages[2] | tojson(separators=(',', ':')) }}": '{"role":"assistant","content":"ok","tags":["b","a","B"],"n":3}',
    "{{ messages[1].content is string }}{{ messages is mapping }}{{ messages is iterable }}{{ 3 is number }}": "TrueFalseTrueTrue",
    "{% with a = messages[2].content %}{{ a }}{% endwith %}{{ ('a', 'b')[1] }}{{ -2 | abs }}{{ '7' | int + 1 }}": "okb28",
    "{{ messages[2].content | safe }}{{ messages[2].get('x', 'none') }}{{ 'AbC'.lower().title() }}": "oknoneAbc",
    "{{ 'xax' | trim(chars='x') }}{{ '%(r)s %(n)d%%' | format(r=messages[2].content, n=2) }}{{ '%(r)s' % {'r': 'y'} }}": "aok 2%y",
    "{{ 'a' ~ (messages[2].tags | tojson | safe) ~ '<' }}{{ [messages[2].content | safe, '&'] | join('<') }}": 'a["b", "a", "B"]<ok<&',
    "{{ 'n' if not ('' | safe) }}{{ 'ab' | safe | length }}": "n2",
    "{{ true is sameas true }}{{ messages[2].n is sameas none }}{{ missing is sameas false }}": "TrueFalseFalse",
    "{{ 'a,b'.split(',') | last }}{{ [3, 1] | max }}{{ [3, 1] | sum }}{{ {'z': 1, 'a': 2} | dictsort | first | first }}": "b34a",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_a_filter_takes_its_arguments_by_the_names_that_jinja_gives_them(name: str) -> None:
    followed = ProvenanceEnvironment(None).filters[name]
    if followed.__name__ == "refusing" or name in {"abs", "count", "length", "string"}:
        return  # these have no arguments beside the value
    passed_by_jinja = {"environment", "eval_ctx", "context"}
    asked = [
        one
        for one in inspect.signature(FILTERS[name]).parameters.values()
        if one.name not in passed_by_jinja and one.kind is one.POSITIONAL_OR_KEYWORD
    ][1:]
    given = inspect.signature(followed).parameters
    open_ended = any(one.kind is one.VAR_KEYWORD for one in given.values())
    assert open_ended or {one.name for one in asked} <= set(given)


def test_a_field_of_a_callers_format_makes_no_control_of_what_the_template_puts_there() -> None:
    for source in ("{{ x.format('<|a|>') }}", "{{ x % ('<|a|>',) }}"):
        for said in ("{}", "%s"):
            if ("format" in source) == (said == "{}"):
                found = ChatTemplate(source).render({"x": said})
                assert [(part, one.kind) for part, one in found] == [("<|a|>", OriginKind.COMPUTED)]


@pytest.mark.parametrize(
    ("source", "got"),
    [
        ("{{ '{}{0}'.format('a') }}", "ValueError"), ("{{ '{0}{}'.format('a') }}", "ValueError"),
        ("{{ '%(a)s' % 'b' }}", "TypeError: format requires a mapping"), ("{{ '%(a)s' | format(b=1) }}", "KeyError"),
        ("{{ '%s' | format(1, a=2) }}", "FilterArgumentError"),
    ],
)  # fmt: skip
def test_a_format_fails_as_plain_jinja_does(source: str, got: str) -> None:
    with pytest.raises(ContractError) as caught:
        ChatTemplate(source).render({})
    found = caught.value.finding
    assert (found.code, found.where) == ("chat.template.raised", "line 1")
    assert found.got.startswith(got)


def test_the_clock_takes_its_format_by_the_public_name() -> None:
    clock = datetime(2031, 5, 1, tzinfo=UTC)
    [(shown, _)] = ChatTemplate("{{ strftime_now(format='%Y') }}", clock=clock).render({})
    assert shown == "2031"


@pytest.mark.parametrize("use", ["== 'a'", "in ['a']", "| unique | list", "+ 'a'"])
def test_text_after_safe_is_refused_where_it_would_be_compared_or_added(use: str) -> None:
    with pytest.raises(OriginError) as caught:
        ChatTemplate(
            "{{ ['a' | safe] | unique | list }}" if "unique" in use else "{{ ('a' | safe) " + use + " }}"
        ).render({})
    assert caught.value.finding.code == "chat.origin.lost"
    assert caught.value.finding.where.startswith("line 1: ")


@pytest.mark.parametrize("source", FEATURES)
def test_a_feature_renders_with_origins(source: str) -> None:
    assert text(source) == FEATURES[source]


REFUSED = {
    "{{ messages[0].content | e }}": "filter e",
    "{{ messages[0].content | urlencode }}": "filter urlencode",
    "{{ messages | pprint }}": "filter pprint",
    "{{ messages | string }}": "string",
    "{{ messages }}": "output",
    "{{ messages[0].content.encode() }}": "method encode",
    "{{ messages[0].content.translate({}) }}": "method translate",
    "{{ '%c' % 60 }}": "%",
    "{{ '{0.x}'.format(messages) }}": "format",
    "{{ (messages[0].content | safe) + 'a' }}": "+",
    "{{ lipsum() }}": "function lipsum",
    "{{ messages[0].content is sameas messages[0].content }}": "test sameas",
    "{{ range(3).start }}": "attribute start",
    "{{ messages[0] | attr('role') }}": "attr",
    "{{ strftime_now('%Y') }}": "strftime_now",
    "{{ messages[1].content | truncate(3) }}": "filter truncate",
    "{% macro m() %}{{ kwargs['a'] }}{% endmacro %}{{ m(a=1) }}": "comparison",
}


@pytest.mark.parametrize("source", REFUSED)
def test_an_operation_that_loses_origins_is_refused_by_name(source: str) -> None:
    with pytest.raises(OriginError) as caught:
        pieces(source)
    assert (caught.value.finding.code, caught.value.finding.where) == (
        "chat.origin.lost",
        f"line 1: {REFUSED[source]}",
    )


@pytest.mark.parametrize(
    "statement", ["{% include 'x' %}", "{% import 'x' as y %}", "{% block a %}{% endblock %}"]
)
def test_a_template_that_reaches_for_another_is_refused(statement: str) -> None:
    with pytest.raises(OriginError) as caught:
        ChatTemplate(statement)
    assert caught.value.finding.where == "line 1"


def test_a_refusal_that_the_template_swallows_still_ends_the_render() -> None:
    source = "{{ (messages[0].content | e) is iterable }}{{ 'fine' }}"
    with pytest.raises(OriginError) as caught:
        pieces(source)
    assert caught.value.finding.where == "line 1: filter e"


def test_a_broken_template_is_named_with_its_line() -> None:
    with pytest.raises(ContractError) as caught:
        ChatTemplate("\n{% if %}")
    assert (caught.value.finding.code, caught.value.finding.where) == ("chat.template.syntax", "line 2")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('no ' ~ messages[0].role) }}", "no system"),
        ("{{ missing.deeper }}", "UndefinedError: 'missing' is undefined"),
        ("{{ 'a' + 1 }}", 'TypeError: can only concatenate str (not "int") to str'),
        ("{{ 'a'.b.c }}", "UndefinedError: 'str object' has no attribute 'b'"),
        (
            "{{ 'x'.__class__.mro() }}",
            "SecurityError: access to attribute '__class__' of 'str' object is unsafe.",
        ),
        (
            "{{ ''.__class__.__mro__ }}",
            "SecurityError: access to attribute '__class__' of 'str' object is unsafe.",
        ),
        ("{{ messages | map('nope') | list }}", "TemplateRuntimeError: No filter named 'nope'."),
        ("{{ messages | selectattr('role', 'nope') | list }}", "TemplateRuntimeError: No test named 'nope'."),
        ("{{ messages.clear() }}", "SecurityError: access to attribute 'clear' of 'list' object is unsafe."),
    ],
)
def test_an_error_of_the_template_is_the_error_of_plain_jinja(source: str, message: str) -> None:
    with pytest.raises(ContractError) as caught:
        pieces(source)
    assert (caught.value.finding.code, caught.value.finding.got) == ("chat.template.raised", message)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (b"x", "extra"),
        ({1: "x"}, "extra"),
        ([{"a": {1, 2}}], "extra[0].a"),
        (float("nan"), "extra"),
    ],
)
def test_a_value_that_json_lacks_is_refused(value: Any, where: str) -> None:
    with pytest.raises(ContractError) as caught:
        pieces("{{ 1 }}", extra=value)
    assert (caught.value.finding.code, caught.value.finding.where) == ("chat.input.json", where)


@pytest.mark.parametrize(
    ("wrong", "got"),
    [(lambda value: value, "1 characters, other text"), (lambda _: 1 / 0, "ZeroDivisionError")],
)
def test_an_operation_followed_in_another_way_than_plain_jinja_does_it_is_found(wrong: Any, got: str) -> None:
    template = ChatTemplate("{{ 'a' | upper }}")
    template._environment.filters["upper"] = wrong
    with pytest.raises(OriginError) as caught:
        template.render({})
    assert (caught.value.finding.code, caught.value.finding.got) == ("chat.render.differs", got)


def test_the_clock_is_the_one_that_was_given() -> None:
    template = ChatTemplate("{{ strftime_now('%Y-%m') }}", clock=datetime(2031, 5, 1, tzinfo=UTC))
    assert template.render({}) == (("2031-05", template.render({})[0][1]),)
    assert template.render({})[0][1].kind is OriginKind.COMPUTED


def test_a_field_knows_its_path() -> None:
    found = pieces("{{ messages[1].content | trim }}{{ messages[2].tags[1] }}")
    assert [origin.path for _, origin in found] == ["messages[1].content", "messages[2].tags[1]"]


def test_only_a_validated_role_counts_as_a_word_of_the_contract() -> None:
    turns = [{"role": "user", "content": "user", "meta": {"role": "user"}}, {"role": "|>", "content": ""}]
    source = (
        "{{ messages[0].role }} {{ messages[0].content }} {{ messages[0].meta.role }} {{ messages[1].role }}"
    )
    kinds = [
        o.kind
        for part, o in ChatTemplate(source).render({"messages": turns}, vocabulary=ROLES)
        if part != " "
    ]
    assert kinds == [OriginKind.VOCABULARY, OriginKind.CALLER, OriginKind.CALLER, OriginKind.CALLER]


def test_a_control_spelled_with_a_validated_role_is_trusted_and_with_another_is_not() -> None:
    source = "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}{% endfor %}"
    turns = [{"role": "user"}, {"role": "root"}]
    prompt = prompt_of(
        ChatTemplate(source).render({"messages": turns}, vocabulary=ROLES), ["<|user|>", "<|root|>"]
    )
    assert prompt.of_kind(Kind.TRUSTED_CONTROL) == [b"<|user|>"]
    assert prompt.of_kind(Kind.DATA) == [b"<|root|>"]


def test_a_control_that_a_caller_triggers_by_replacement_is_data() -> None:
    source = "{{ messages[0].content | replace('<image>', '<|image_pad|>') }}{{ '<image>' | replace('<image>', '<|image_pad|>') }}"
    prompt = prompt_of(
        ChatTemplate(source).render({"messages": [{"role": "user", "content": "<image>"}]}), ["<|image_pad|>"]
    )
    assert [segment.kind for segment in prompt.segments] == [Kind.DATA, Kind.TRUSTED_CONTROL]


@pytest.mark.parametrize(
    "expression",
    [
        "'<|im_' + m", "'<|im_' ~ m", "['<|im_', m] | join", "'<|im_%s' % m", "'<|im_{}'.format(m)",
        "('<|im_X' | replace('X', m))", "('<|IM_' ~ m) | lower", "m | replace('end', '<|im_end')",
        "('<|im_' ~ m) | trim", "('<|im_' ~ m)[0:]", "[('<|im_' ~ m)] | first", "'<|im_'.join(['', m])",
    ],
)  # fmt: skip
def test_no_operation_turns_a_callers_part_into_control(expression: str) -> None:
    source = "{% set m = messages[0].content %}{{ " + expression + " }}"
    prompt = prompt_of(ChatTemplate(source).render({"messages": [{"content": "end|>"}]}), ["<|im_end|>"])
    assert prompt.stream == b"<|im_end|>"
    assert prompt.of_kind(Kind.TRUSTED_CONTROL) == []


LLAMA = """{{- bos_token }}{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}
{%- set messages = messages[1:] %}{%- else %}{%- set system_message = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' + system_message + '<|eot_id|>' }}
{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"""
MISTRAL = """{%- set loop_messages = messages[1:] if messages[0].role == 'system' else messages %}{{ bos_token }}
{%- for message in loop_messages %}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{%- endif %}
{%- if message.role == 'user' %}{{ '[INST] ' + message.content + ' [/INST]' }}{%- else %}{{ message.content + eos_token }}{%- endif %}{%- endfor %}"""


@pytest.mark.parametrize(
    ("source", "atoms"),
    [
        (LLAMA, ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>"]),
        (MISTRAL, ["[INST]", "[/INST]", "<s>", "</s>"]),
    ],
)
def test_templates_of_other_families_keep_a_forged_control_as_data(source: str, atoms: list[str]) -> None:
    turns = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "".join(atoms)},
        {"role": "assistant", "content": "ok"},
    ]
    template = ChatTemplate(source, constants={"bos_token": "<s>", "eos_token": "</s>"})
    prompt = prompt_of(template.render({"messages": turns}, vocabulary=ROLES), atoms)
    forged = prompt.stream.index("".join(atoms).encode())
    inside = [
        s
        for s in prompt.segments
        if s.offset <= forged and forged + len("".join(atoms)) <= s.offset + s.length
    ]
    assert [segment.kind for segment in inside] == [Kind.DATA]
    assert prompt.of_kind(Kind.TRUSTED_CONTROL)


EXPRESSIONS = st.sampled_from([
    "x | trim", "x.strip(y)", "x.split()", "x.split(y)", "x.rsplit(y, 1)", "x.replace(y, 'Z')", "x | replace(y, z, 1)",
    "x.partition(y)", "x.rpartition(y)", "x.removeprefix(y)", "x.removesuffix(y)", "x.splitlines()", "x.splitlines(true)",
    "x.lstrip() ~ y.rstrip()", "x[1:-1]", "x[::-1]", "x[2]", "x.startswith(y)", "y in x", "x == y", "x < y", "x.find(y)",
    "x.count(y)", "x | length", "x | tojson", "[x, y] | join(z)", "x | indent(2)", "x | indent(1, true, true)",
    "x.ljust(9, '*')", "x | center(9)", "x | lower", "x | upper", "x | title", "x.swapcase()", "x | list",
    "x | reverse", "x.split(y, 1) | last", "(x ~ y).split(z)", "x | wordcount", "x | int(7)",
])  # fmt: skip


@settings(max_examples=400)
@given(EXPRESSIONS, *[st.text("ab <|>\n\tßé\x1c\u3000", max_size=7) for _ in range(3)])
def test_every_operation_gives_the_text_of_plain_jinja(expression: str, x: str, y: str, z: str) -> None:
    source = "{% set r = " + expression + " %}{{ r if r is string or r is number else r | tojson }}"
    variables = {"x": x, "y": y, "z": z}
    try:
        found = ChatTemplate(source).render(
            variables
        )  # compares with plain Jinja by itself and raises if they part
    except ContractError as error:
        assert error.finding.code == "chat.template.raised"  # noqa: PT017 - an empty separator, in both renderings
        return
    except OriginError as error:
        assert error.finding.where.removeprefix("line 1: ") in {"upper", "title", "swapcase", "tojson"}  # noqa: PT017 - ß changes length
        return
    assert all(origin.kind is not OriginKind.VOCABULARY for _, origin in found)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% set ns = namespace(a=none) %}{{ ns.a is none }}{{ ns.a is defined }}", "TrueTrue"),
        ("{% set ns = namespace(a=none) %}{{ ns['a'] is none }}", "True"),
        ("{% set x = none|selectattr('a') %}ok", "ok"),
        ("{% set x = none|map('upper') %}ok", "ok"),
        ("{% set x = none|reject('defined') %}ok", "ok"),
        ("{% set x = none|unique %}ok", "ok"),
        ("{{ none|map('upper')|list|length }}{{ none|select|list|length }}", "00"),
    ],
)
def test_none_reads_as_plain_jinja_reads_it(source: str, text: str) -> None:
    assert "".join(piece for piece, _ in ChatTemplate(source).render({})) == text


def test_two_places_never_have_the_same_path() -> None:
    values = {"a": {"b.c": "1", "b": {"c": "2"}, "b[0]": "3", "": "4", " (key)": "5"}, "a.b": {"c": "6"}}
    source = "{{ v.a['b.c'] }}{{ v.a.b.c }}{{ v.a['b[0]'] }}{{ v.a[''] }}{{ v.a[' (key)'] }}{{ v['a.b'].c }}"
    found = {text: origin.path for text, origin in ChatTemplate(source).render({"v": values})}
    assert found == {
        "1": 'v.a["b.c"]', "2": "v.a.b.c", "3": 'v.a["b[0]"]', "4": 'v.a[""]', "5": 'v.a[" (key)"]', "6": 'v["a.b"].c',
    }  # fmt: skip


def test_values_below_a_long_key_share_its_text() -> None:
    key = "k" * 1000
    pieces = ChatTemplate("{% for one in v[messages] %}{{ one }},{% endfor %}").render(
        {"v": {key: ["a", "b"]}, "messages": key}
    )
    places = [origin.place for text, origin in pieces if text in {"a", "b"}]
    assert all(isinstance(place, Place) for place in places)
    assert places[0].parent is places[1].parent  # type: ignore[union-attr]
    assert places[0].parent.step is key  # type: ignore[union-attr]


A, B, C = ((word, f"messages[{index}].content") for index, word in enumerate("ABC"))
BAR, GAP = ("|", ""), (" ", "")


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("ns.t", [GAP, A, BAR, B, BAR, C]),
        ("ns.t.strip()", [A, BAR, B, BAR, C]),
        ("ns.t | trim", [A, BAR, B, BAR, C]),
        ("ns.t.split('|')[0]", [GAP, A]),
        ("ns.t.split('|')[1:] | join", [B, C]),
        ("ns.t.rsplit('|', 1) | last", [C]),
        ("(ns.t ~ ns.t).partition('B')[0]", [GAP, A, BAR]),
        ("ns.t.splitlines() | last", [GAP, A, BAR, B, BAR, C]),
        ("ns.t[1:2] ~ ns.t[3:4]", [A, B]),
        ("ns.t.lstrip(' A')", [BAR, B, BAR, C]),
        ("ns.t.removesuffix('|C')", [GAP, A, BAR, B]),
    ],
)
def test_an_accumulated_text_keeps_the_field_of_every_part(
    expression: str, parts: list[tuple[str, str]]
) -> None:
    source = (
        "{% set ns = namespace(t=' ') %}{% for m in messages %}{% set ns.t = ns.t ~ m.content ~ '|' %}{% endfor %}"
        "{% set ns.t = ns.t.removesuffix('|') %}{{ " + expression + " }}"
    )
    turns = [{"content": word} for word in "ABC"]
    assert [(text, origin.path) for text, origin in ChatTemplate(source).render({"messages": turns})] == parts
