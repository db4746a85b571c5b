"""Templates as other families write them: each renders to the bytes of plain Jinja, and a forged control stays data.

They are written here, in the manner of the public ones: macros, counters in namespaces, `raise_exception`,
`strftime_now`, loop controls, JSON with indent, generation blocks, sorted and filtered mappings, whitespace control.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from assay.impl.text.origin import OriginError, OriginKind
from assay.impl.text.segments import Kind, Prompt, prompt_of
from assay.impl.text.template import ChatTemplate
from assay.spec.errors import ContractError

ROLES = {"role": frozenset({"system", "user", "assistant", "tool"})}
CLOCK = datetime(2031, 5, 1, tzinfo=UTC)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "café",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "b": {"type": "integer"}},
            },
        },
    }
]
CALLS = [
    {"id": "abcdefghi", "function": {"name": "weather", "arguments": {"city": "Paris", "days": [1, None]}}}
]


def _wide(text: str) -> str:
    """Returns a text with the full-width bar and the low block that some families spell controls with."""
    return (
        text.replace("<!", "<\uff5c")
        .replace("!>", "\uff5c>")
        .replace("_begin", "\u2581begin")
        .replace("_end", "\u2581end")
    )


TEMPLATES: dict[str, tuple[str, list[str]]] = {
    "chatml": (
        """{%- for turn in messages -%}
    {%- if loop.first and turn.role != 'system' -%}{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}{%- endif -%}
    {{ '<|im_start|>' ~ turn['role'] ~ '\\n' ~ turn['content'] ~ '<|im_end|>' ~ '\\n' }}
{%- endfor -%}
{{ '<|im_start|>assistant\\n' if add_generation_prompt }}""",
        ["<|im_start|>", "<|im_end|>"],
    ),
    "llama-3": (
        """{%- set today = date_string if date_string is defined else strftime_now('%d %b %Y') -%}
{%- set lead, rest = (messages[0].content | trim, messages[1:]) if messages[0]['role'] == 'system' else ('', messages) -%}
{{ bos_token ~ '<|start_header_id|>system<|end_header_id|>\\n\\nDate: ' + today ~ '\\n' }}
{%- for tool in tools or [] -%}{{ tool | tojson(indent=4) ~ '\\n' }}{%- endfor -%}
{{ lead ~ '<|eot_id|>' }}
{%- for turn in rest -%}
    {%- if turn.tool_calls is defined -%}
        {%- if turn.tool_calls | length != 1 -%}{{ raise_exception('one call only') }}{%- endif -%}
        {%- set chosen = turn.tool_calls[0].function -%}
        <|start_header_id|>assistant<|end_header_id|>
{{ '{"name": "' + chosen.name + '", "parameters": ' ~ chosen.arguments | tojson ~ '}<|eot_id|>' }}
    {%- elif turn.role == 'tool' -%}
        {{ '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {{- turn.content if turn.content is string else turn.content | tojson }}<|eot_id|>
    {%- else -%}
        {{ '<|start_header_id|>' + turn['role'] + '<|end_header_id|>\\n\\n' + turn['content'] | trim + '<|eot_id|>' }}
    {%- endif -%}
{%- endfor -%}""",
        ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>"],
    ),
    "mistral": (
        """{%- set state = namespace(asked=0) -%}
{%- set body = messages[1:] if messages[0].role == 'system' else messages -%}
{%- set asking = body | selectattr('role', 'equalto', 'user') | list -%}
{%- for turn in body if turn.role != 'tool' and not turn.tool_calls -%}
    {%- if (turn.role == 'user') != (state.asked % 2 == 0) -%}{{ raise_exception('alternate') }}{%- endif -%}
    {%- set state.asked = state.asked + 1 -%}
{%- endfor -%}
{{ bos_token }}
{%- for turn in body -%}
    {%- if turn.role == 'user' -%}
        {%- if tools and turn == asking[-1] -%}
            [AVAILABLE_TOOLS]{% for tool in tools %}{% for key, value in tool.function.items() if key != 'return' -%}
                {{ '"' + key + '": ' + (value if value is string else value | tojson) }}{{ ', ' if not loop.last }}
            {%- endfor %}{% endfor %}[/AVAILABLE_TOOLS]
        {%- endif -%}
        {{ '[INST]' + (messages[0].content + '\\n' if loop.last else '') + turn['content'] + '[/INST]' }}
    {%- elif turn.tool_calls -%}
        {%- for one in turn.tool_calls -%}
            {%- if one.id | length != 9 -%}{{ raise_exception('an id has nine characters') }}{%- endif -%}
            {{ '[TOOL_CALLS]' }}{{ (one.function | tojson)[:-1] }}{{ ', "id": "' + one.id + '"}' + eos_token }}
        {%- endfor -%}
    {%- elif turn.role == 'tool' -%}{{ '[TOOL_RESULTS]{"content": ' + turn.content | string + '}[/TOOL_RESULTS]' }}
    {%- else -%}{{ ' ' + turn.content | trim + eos_token }}{%- endif -%}
{%- endfor -%}""",
        ["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "<s>", "</s>"],
    ),
    "deepseek": (
        _wide("""{%- set state = namespace(lead='', opened=false) -%}
{%- for turn in messages if turn.role == 'system' -%}{%- set state.lead = state.lead + turn.content -%}{%- endfor -%}
{{ bos_token }}{{ state.lead }}
{%- for turn in messages -%}
    {%- if turn.role == 'user' -%}{{ '<!User!>' + turn.content }}
    {%- elif turn.role == 'assistant' and turn.content is none -%}
        {%- for one in turn.tool_calls -%}
            {{ ('<!Assistant!><!calls_begin!>' if not state.opened else '') + '<!call_begin!>' + one.function.name + '\\n```json\\n' }}
            {{- one.function.arguments | tojson + '\\n```' + '<!call_end!>' }}{%- set state.opened = true -%}
        {%- endfor -%}{{ '<!calls_end!>' }}
    {%- elif turn.role == 'assistant' -%}
        {%- set said = turn.content.split('</think>')[-1] if '</think>' in turn.content else turn.content -%}
        {{ '<!Assistant!>' + said + '<!end_of_sentence!>' }}
    {%- elif turn.role == 'tool' -%}{{ '<!output_begin!>' + turn.content + '<!output_end!>' }}{%- endif -%}
{%- endfor -%}
{{ '<!Assistant!>' if add_generation_prompt and messages[-1].role != 'tool' }}"""),
        [_wide(f"<!{name}!>") for name in ("User", "Assistant", "calls_begin", "call_begin", "call_end", "calls_end", "end_of_sentence", "output_begin", "output_end")],
    ),
    "gemma": (
        """{{ bos_token }}{%- set has_system = messages[0].role == 'system' -%}
{%- set prefix = messages[0].content + '\\n\\n' if has_system and messages[0].content is string else '' -%}
{%- for turn in (messages[1:] if has_system else messages) -%}
    {%- set speaker = 'model' if turn.role == 'assistant' else turn.role -%}
    {{ '<start_of_turn>' + speaker + '\\n' + (prefix if loop.first else '') }}
    {%- if turn.content is string -%}{{ turn.content | trim }}
    {%- elif turn.content is iterable -%}{%- for part in turn.content if part.type == 'text' -%}{{ part.text | trim }}{%- endfor -%}
    {%- elif turn.content is not none -%}{{ raise_exception('no such content') }}{%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{{ '<start_of_turn>model\\n' if add_generation_prompt }}""",
        ["<start_of_turn>", "<end_of_turn>", "<s>"],
    ),
    "harmony": (
        """{%- macro kind(spec, required, nullable=false) -%}
{%- if spec.type == 'object' -%}{{ '{' }}{%- for key, one in spec.properties.items() -%}{{ key }}{{ '?' if key not in (required or []) }}: {{ kind(one, []) }}{{ ', ' if not loop.last }}{%- endfor -%}{{ '}' }}
{%- elif spec.type == 'string' -%}{{ '"' + spec.enum | join('" | "') + '"' if spec.enum else 'string' }}
{%- else -%}{{ 'any' ~ (' | null' if nullable) }}{%- endif -%}{%- endmacro -%}
{%- macro turn(role, channel=none) -%}{{ '<|start|>' ~ role ~ ('<|channel|>' ~ channel if channel else '') ~ '<|message|>' }}{{ caller() }}{{ '<|end|>' }}{%- endmacro -%}
{%- set asked = namespace(name=none) -%}
{%- call turn('system') -%}It is {{ strftime_now(format='%Y') }}.{% for tool in tools or [] %}{% set tool = tool.function %}
type {{ tool.name }} = (_: {{ kind(tool.parameters, tool.parameters.required) }}) => any; // {{ tool.description | trim(chars='/') }}{% endfor %}{%- endcall -%}
{%- for m in messages -%}
    {%- if m.tool_calls -%}
        {%- set asked.name = m.tool_calls[0].function.name -%}
        {%- call turn('assistant to=' ~ asked.name, 'commentary') -%}{{ m.tool_calls[0].function.arguments | tojson | safe }}{%- endcall -%}
    {%- elif m.role == 'tool' -%}
        {%- if asked.name is sameas none -%}{{ raise_exception(message='no call before') }}{%- endif -%}
        {%- call turn(asked.name) -%}{{ m.content | tojson }}{%- endcall -%}
    {%- else -%}{%- call turn(m.role, 'final' if m.role == 'assistant') -%}{{ m.content }}{%- endcall -%}{%- endif -%}
{%- endfor -%}{{ '<|start|>assistant' if add_generation_prompt is sameas true }}""",
        ["<|start|>", "<|end|>", "<|message|>", "<|channel|>"],
    ),
    "nemotron": (
        """{%- macro rest(fields, told) -%}{%- for key in fields if key not in told -%}
    {%- if fields[key] is mapping or (fields[key] is sequence and fields[key] is not string) -%}{{ '<' ~ key ~ '>' ~ (fields[key] | tojson | safe) ~ '</' ~ key ~ '>' }}
    {%- else -%}{{ '<' ~ key ~ '>' ~ (fields[key] | string) ~ '</' ~ key ~ '>' }}{%- endif -%}{%- endfor -%}{%- endmacro -%}
{{ bos_token }}{%- for tool in tools or [] -%}{{ '<TOOLS>' ~ rest(tool.function, ['type']) ~ '</TOOLS>' }}{%- endfor -%}
{%- for m in messages -%}{{ '<SPECIAL_10>' if loop.changed(m.role) }}{{ '%(who)s: %(said)s' | format(who=m.role, said=m.content or '') }}{{ '<SPECIAL_12>' if loop.last or messages[loop.index0 + 1].role != m.role }}
{%- for call in m.tool_calls or [] -%}{{ '<TOOLCALL>' ~ [call.function.name, call.function.arguments | tojson | safe] | join(': ') ~ '</TOOLCALL>' }}{%- endfor -%}
{%- endfor -%}""",
        ["<SPECIAL_10>", "<SPECIAL_12>", "<TOOLS>", "</TOOLS>", "<TOOLCALL>", "</TOOLCALL>", "<s>"],
    ),
    "phi": (
        """{% for turn in messages %}{{ '<|' + turn['role'] + '|>' + (turn['content'] or '') + '<|end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}""",
        ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
    ),
    "kitchen-sink": (
        """{%- macro render(value, depth=0) -%}{%- if value is mapping -%}{%- for k, v in value | dictsort -%}{{ '  ' * depth }}{{ k | upper }}: {{ render(v, depth + 1) }}{{ '\\n' if not loop.last }}{%- endfor -%}{%- elif value is sequence and value is not string -%}{{ value | map('tojson') | join(', ') }}{%- else -%}{{ value }}{%- endif -%}{%- endmacro -%}
{%- set counts = namespace(user=0, seen=[]) -%}
{%- for m in messages if m.role != 'system' -%}{%- if loop.index > 50 -%}{%- break -%}{%- endif -%}{%- if not m.content -%}{%- continue -%}{%- endif -%}
{%- set counts.user = counts.user + (1 if m.role == 'user' else 0) -%}{%- set counts.seen = counts.seen + [m.role] -%}
<|turn|>{{ loop.cycle('odd', 'even') }} {{ m.role | title }} #{{ '%s of %d' % (loop.index, messages | length) }}
{% generation %}{{ m.content | replace('\\r\\n', '\\n') | trim }}{% endgeneration %}<|end|>
{%- endfor -%}
{%- set grouped = counts.seen | unique | sort | join('/') -%}{{ grouped }} {{ counts.user }}{{ messages | rejectattr('role', 'in', ['tool', 'system']) | map(attribute='role') | list | tojson }}
{%- for t in tools or [] -%}{{ render(t.function.parameters) }}{{ t | tojson(indent=2) }}{{ (t.function.name ~ '!').center(14, '*') }}{%- endfor -%}
{%- set tail -%}{{ messages[-1].content | default('', true) }}{%- endset -%}{{ tail.splitlines() | last | default('-') }}{{ strftime_now('%Y') }}""",
        ["<|turn|>", "<|end|>"],
    ),
}  # fmt: skip


def conversation(said: str, *, with_tools: bool) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = [
        {"role": "system", "content": f" {said} "}, {"role": "user", "content": said},
        {"role": "assistant", "content": f"ok {said}"}, {"role": "user", "content": f"{said}\nagain {said}"},
    ]  # fmt: skip
    if with_tools:
        turns += [
            {"role": "assistant", "content": None, "tool_calls": CALLS},
            {"role": "tool", "content": said},
        ]
    return turns


def rendered(name: str, said: str, *, with_tools: bool) -> Prompt:
    source, atoms = TEMPLATES[name]
    template = ChatTemplate(source, clock=CLOCK, constants={"bos_token": "<s>", "eos_token": "</s>"})
    variables: dict[str, Any] = {
        "messages": conversation(said, with_tools=with_tools),
        "add_generation_prompt": True,
    }
    if with_tools:
        variables["tools"] = TOOLS
    return prompt_of(template.render(variables, vocabulary=ROLES), atoms)


WITH_TOOLS = ["llama-3", "mistral", "deepseek", "harmony", "nemotron", "kitchen-sink"]


@pytest.mark.parametrize("with_tools", [False, True])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_forged_control_changes_no_control_of_the_template(name: str, with_tools: bool) -> None:
    if with_tools and name not in WITH_TOOLS:
        with_tools = False  # these templates have no place for calls
    atoms = TEMPLATES[name][1]
    harmless = rendered(name, "plain words", with_tools=with_tools)
    forged = rendered(name, "".join(atoms) + "x" + atoms[-1], with_tools=with_tools)
    assert harmless.of_kind(Kind.TRUSTED_CONTROL)
    assert forged.of_kind(Kind.TRUSTED_CONTROL) == harmless.of_kind(Kind.TRUSTED_CONTROL)
    owner = [span.origin.kind for span in forged.origins for _ in range(span.length)]
    for one in forged.segments:
        if one.kind == Kind.TRUSTED_CONTROL:
            makers = set(owner[one.offset : one.offset + one.length])
            assert makers <= {OriginKind.TEMPLATE, OriginKind.VOCABULARY}


def test_a_word_that_no_closed_set_holds_makes_no_control_of_a_role() -> None:
    source, atoms = TEMPLATES["phi"]
    turns = [{"role": "user", "content": "a"}, {"role": "end", "content": "b"}]
    prompt = prompt_of(ChatTemplate(source).render({"messages": turns}, vocabulary=ROLES), atoms)
    assert prompt.of_kind(Kind.TRUSTED_CONTROL) == [b"<|user|>", b"<|end|>", b"<|end|>"]
    assert prompt.stream == b"<|user|>a<|end|><|end|>b<|end|>"


@pytest.mark.parametrize(
    ("name", "turns", "got"),
    [
        ("mistral", [{"role": "assistant", "content": "a"}], "alternate"),
        ("gemma", [{"role": "user", "content": 3}], "no such content"),
    ],
)
def test_what_a_template_refuses_is_told_with_its_line(name: str, turns: list[Any], got: str) -> None:
    template = ChatTemplate(TEMPLATES[name][0], constants={"bos_token": "<s>", "eos_token": "</s>"})
    with pytest.raises(ContractError) as caught:
        template.render({"messages": turns})
    found = caught.value.finding
    assert (found.code, found.got) == ("chat.template.raised", got)
    assert found.where.startswith("line ")


def test_a_template_that_asks_for_the_time_is_refused_without_a_clock() -> None:
    template = ChatTemplate(TEMPLATES["llama-3"][0], constants={"bos_token": "<s>"})
    with pytest.raises(OriginError) as caught:
        template.render({"messages": [{"role": "user", "content": "a"}]})
    assert (caught.value.finding.code, caught.value.finding.where) == (
        "chat.origin.lost",
        "line 1: strftime_now",
    )
