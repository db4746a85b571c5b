"""The miniature's own tokenizer and chat template, written by code so that every copy has the same bytes.

The vocabulary is 256 bytes and 64 merges. The merges are chosen for what they can show: chains whose order matters,
whitespace runs, pieces of control spellings, and characters of two and three bytes.
"""

import json
from pathlib import Path
from typing import Any, Final

from assay.impl.text.engine import ALPHABET
from assay.spec.text import PATTERN, text_contract

MERGES: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b" ", b" "), (b"  ", b"  "), (b"\n", b"\n"), (b"\r", b"\n"), (b"h", b"e"), (b" ", b"t"), (b"i", b"n"),
    (b" t", b"he"), (b"r", b"e"), (b"o", b"n"), (b" ", b"a"), (b"e", b"r"), (b"a", b"t"), (b"n", b"d"),
    (b"o", b"u"), (b" ", b"s"), (b"in", b"g"), (b"e", b"n"), (b"i", b"s"), (b"o", b"r"), (b" a", b"nd"),
    (b"l", b"l"), (b"he", b"ll"), (b"hell", b"o"), (b"u", b"s"), (b"us", b"er"), (b"a", b"s"), (b"as", b"s"),
    (b"ass", b"is"), (b"t", b"a"), (b"n", b"t"), (b"assis", b"ta"), (b"assista", b"nt"), (b"s", b"y"),
    (b"s", b"t"), (b"sy", b"st"), (b"e", b"m"), (b"syst", b"em"), (b"<", b"|"), (b"|", b">"), (b"i", b"m"),
    (b"<|", b"im"), (b"_", b"e"), (b"t", b"h"), (b"th", b"in"), (b"thin", b"k"), (b">", b"<"), (b"<", b"/"),
    (b"\xc3", b"\xa9"), (b"\xc3", b"\xa0"), (b"f", b"\xc3\xa9"), (b"\xe0", b"\xa4"), (b"\xe0", b"\xa5"),
    (b"\xe0\xa4", b"\x95"), (b"\xe0\xa5", b"\x8d"), (b"\xe0\xa4\x95", b"\xe0\xa5\x8d"), (b"\xe4", b"\xbd"),
    (b"\xe4\xbd", b"\xa0"), (b"\xe5", b"\xa5"), (b"\xe5\xa5", b"\xbd"), (b"\xf0", b"\x9f"), (b"'", b"s"),
    (b"1", b"2"), (b"=", b"="),
)  # fmt: skip

TEMPLATE: Final = r"""{%- macro said(content) -%}
    {%- if content is string -%}{{ content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for part in content -%}
            {%- if part.text is not string -%}{{ raise_exception('only text parts can be rendered') }}{%- endif -%}
            {{ part.text }}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- macro call(function) -%}
    {{ '<tool_call>\n<function=' ~ function.name ~ '>\n' }}
    {%- if function.arguments -%}
        {%- for name, value in function.arguments.items() -%}
            {{ '<parameter=' ~ name ~ '>\n' ~ (value if value is string else value | tojson) ~ '\n</parameter>\n' }}
        {%- endfor -%}
    {%- endif -%}
    {{ '</function>\n</tool_call>' }}
{%- endmacro -%}
{%- set state = namespace(query=-1, lead='', opened=false) -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}
        {%- set text = said(message.content).strip() -%}
        {%- if not (text.startswith('<tool_response>') and text.endswith('</tool_response>')) -%}
            {%- set state.query = loop.index0 -%}
        {%- endif -%}
    {%- endif -%}
{%- endfor -%}
{%- if enable_thinking is not defined or enable_thinking is true -%}
    {%- set effort = reasoning_effort | default('xhigh') -%}
    {%- if effort == 'xhigh' -%}
        {%- set state.lead = 'Think for as long as the task deserves: list what you assume, test it, then answer.' -%}
    {%- elif effort == 'low' -%}
        {%- set state.lead = 'Think briefly and answer.' -%}
    {%- elif effort != 'medium' -%}
        {{ raise_exception('no such effort: ' ~ effort) }}
    {%- endif -%}
{%- endif -%}
{%- if state.query < 0 -%}{{ raise_exception('nobody asked anything') }}{%- endif -%}
{%- set system = said(messages[0].content).strip() if messages[0].role == 'system' else '' -%}
{%- if tools -%}
    {{ '<|im_start|>system\n' ~ (state.lead ~ '\n\n' if state.lead else '') }}
    {{- '# Functions\n\nThese can be called:\n\n<tools>' }}
    {%- for tool in tools -%}{{ '\n' ~ (tool | tojson) }}{%- endfor -%}
    {{ '\n</tools>' }}
    {{- '\n\nTo call one, write nothing after this form:\n\n<tool_call>\n<function=name>\n<parameter=name>\nvalue\n</parameter>\n</function>\n</tool_call>' }}
    {{- ('\n\n' ~ system if system else '') ~ '<|im_end|>\n' }}
{%- elif state.lead or system -%}
    {{ '<|im_start|>system\n' ~ [state.lead, system] | select | join('\n\n') ~ '<|im_end|>\n' }}
{%- endif -%}
{%- for message in messages -%}
    {%- set text = said(message.content).strip() -%}
    {%- if message.role == 'system' -%}
        {%- if loop.index0 -%}{{ raise_exception('a system message after the first place') }}{%- endif -%}
    {%- elif message.role == 'user' -%}
        {{ '<|im_start|>user\n' ~ text ~ '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' -%}
        {{ '<|im_start|>assistant\n' }}
        {%- if preserve_thinking is not defined or preserve_thinking is true or loop.index0 > state.query -%}
            {{ '<think>\n' ~ (message.reasoning_content or '').strip() ~ '\n</think>\n\n' }}
        {%- endif -%}
        {{ text }}
        {%- for one in message.tool_calls or [] -%}
            {{ '\n' if not loop.first else '\n\n' if text else '' }}
            {{- call(one.function if one.function is defined else one) }}
        {%- endfor -%}
        {{ '<|im_end|>\n' }}
    {%- elif message.role == 'tool' -%}
        {{ '' if loop.first or loop.previtem.role == 'tool' else '<|im_start|>user' }}
        {{- '\n<tool_response>\n' ~ text ~ '\n</tool_response>' }}
        {{- '' if not loop.last and loop.nextitem.role == 'tool' else '<|im_end|>\n' }}
    {%- else -%}
        {{ raise_exception('a role that nobody has') }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<|im_start|>assistant\n<think>\n' }}
    {{- '\n</think>\n\n' if enable_thinking is defined and enable_thinking is false else '' }}
{%- endif -%}
"""


def tokenizer_files() -> dict[str, bytes]:
    """Returns the bytes of the miniature's five tokenizer files by name."""
    contract = text_contract("miniature")
    vocabulary = {ALPHABET[value]: index for index, value in enumerate(_byte_order())}
    merges = [(_shown(left), _shown(right)) for left, right in MERGES]
    vocabulary |= {left + right: 256 + rank for rank, (left, right) in enumerate(merges)}
    added = [
        {
            "id": token.id, "content": token.content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": token.special,
        }
        for token in contract.added
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
                byte_level,
            ],
        },
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": vocabulary, "merges": [list(pair) for pair in merges],
        },
    }  # fmt: skip
    spelled = {token.id: token.content for token in contract.added}
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(row["id"]): {k: v for k, v in row.items() if k != "id"} for row in added
        },
        "bos_token": None,
        "eos_token": spelled[contract.declared.eos],
        "pad_token": spelled[contract.declared.pad],
        "model_max_length": 4096,
        "pretokenize_regex": PATTERN,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    return {
        "tokenizer.json": _json(document),
        "vocab.json": _json(vocabulary),
        "merges.txt": "".join(f"{left} {right}\n" for left, right in merges).encode(),
        "tokenizer_config.json": _json(config),
        "chat_template.jinja": TEMPLATE.encode(),
    }


def write_tokenizer(directory: Path) -> None:
    """Writes the miniature's tokenizer files into a directory, which is made if absent."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in tokenizer_files().items():
        (directory / name).write_bytes(data)


def _byte_order() -> list[int]:
    """Returns the byte values in the order of their ids: printable ones first, as byte-level BPE has them."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return shown + [value for value in range(256) if value not in set(shown)]


def _shown(data: bytes) -> str:
    return "".join(ALPHABET[value] for value in data)


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()
