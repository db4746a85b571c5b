"""Random but repeatable inputs of the text gates: strings across scripts, and conversations of every legal shape."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

from assay.spec.text import TextContract

SCRIPTS: Final = (
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x58A), (0x591, 0x5F4),
    (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FE), (0xA01, 0xA75), (0xB82, 0xBFA), (0xC00, 0xC7F), (0xD00, 0xD7F),
    (0xE01, 0xE5B), (0xE81, 0xEDF), (0xF00, 0xFDA), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF),
    (0x1200, 0x1399), (0x1780, 0x17F9), (0x1D00, 0x1DBF), (0x1E00, 0x1FFE), (0x2000, 0x206F), (0x20D0, 0x20F0),
    (0x2150, 0x218B), (0x2460, 0x24FF), (0x3000, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xAFFF), (0xF900, 0xFAD9),
    (0xFB00, 0xFB4F), (0xFE00, 0xFE2F), (0xFF01, 0xFFEE), (0x10330, 0x1034A), (0x11080, 0x110C2), (0x1D400, 0x1D7FF),
    (0x1F300, 0x1F6D2), (0x1F900, 0x1F9FF), (0x20000, 0x20100),
)  # fmt: skip
"""Ranges of code points: every script family, combining marks, digits, symbols, compatibility forms, beyond the BMP."""

CORPUS: Final = (
    "The quick brown fox jumps over 13 lazy dogs. ", "I'm sure we'll test it; DON'T you'\u017fe? ", "naïve façade — déjà vu ",
    "हिन्दी में पाठ ", "中文\uff0c日本語と한국어。", "اَلْعَرَبِيَّةُ ١٢٣ ", "עִבְרִית ", "Ελληνικά Ωμέγα ", "Русский текст ", "ภาษาไทยกำ ",
    'def f(x: int) -> str:\n\treturn f"{x!r}\\n"  # ok\r\n', '{"a": [1, -2.5e3, null], "b": "é"}\n', "👩🏽‍💻🏳️‍🌈🙂 ",
    " \t\n\r\n  ", "\u00a0\u2003\u3000\u0085", "x\u0301\u0327 e\u0301 a\u0327\u0301 ", "½ ⅷ ²³ ① ٣ ",
)  # fmt: skip


def strings(seed: int, count: int, excluded: frozenset[str], contract: TextContract) -> Iterator[str]:
    """Yields random strings of one script, of mixed scripts, of corpus pieces and of control spellings.

    Args:
        seed: of the generator; the same seed gives the same strings.
        count: how many.
        excluded: characters that are left out.
        contract: whose control spellings are mixed in.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable test input
    spans = [
        [chr(code) for code in range(low, high + 1) if chr(code) not in excluded] for low, high in SCRIPTS
    ]
    marks = spans[2]
    words = [*("".join(one for one in text if one not in excluded) for text in CORPUS), *"\n\r\t '\u2019"]
    spelled = [token.content for token in contract.added]
    for index in range(count):
        kind = index % 5
        if kind == 0:
            yield "".join(rng.choices(rng.choice(spans), k=rng.randint(1, 14)))
        elif kind == 1:
            yield "".join(rng.choice(rng.choice(spans)) for _ in range(rng.randint(1, 14)))
        elif kind == 2:
            text = "".join(rng.choices(words, k=rng.randint(1, 3)))
            start = rng.randrange(len(text))
            yield text[start : start + rng.randint(1, 40)]
        elif kind == 3:
            span = rng.choice(spans)
            yield "".join(
                rng.choice(span) + "".join(rng.choices(marks, k=rng.randint(0, 2)))
                for _ in range(rng.randint(1, 6))
            )
        else:
            yield "".join(
                rng.choice([rng.choice(spelled), rng.choice(words), rng.choice(rng.choice(spans))])
                for _ in range(3)
            )


def conversations(
    seed: int, count: int, contract: TextContract
) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Yields random conversations with their options, most of them legal, some with one fault."""
    rng = random.Random(seed)  # noqa: S311 - repeatable test input
    for _ in range(count):
        turns: list[dict[str, Any]] = []
        if rng.random() < 0.4:
            turns.append({"role": "system", "content": _content(rng, contract)})
        turns += [_turn(rng, contract) for _ in range(rng.randint(1, 6))]
        if rng.random() < 0.05:
            turns.append({"role": rng.choice(["system", "developer"]), "content": "late"})
        yield turns, _options(rng, contract)


def _turn(rng: random.Random, contract: TextContract) -> dict[str, Any]:
    role = rng.choice(["user", "user", "assistant", "tool"])
    turn: dict[str, Any] = {"role": role, "content": _content(rng, contract)}
    if role == "assistant":
        if rng.random() < 0.5:
            turn["reasoning_content"] = _words(rng, contract)
        if rng.random() < 0.5:
            calls = [
                {"name": _words(rng, contract) or "f", "arguments": {_words(rng, contract): _value(rng, contract, 2) for _ in range(rng.randint(0, 3))}}
                for _ in range(rng.randint(1, 3))
            ]  # fmt: skip
            turn["tool_calls"] = [
                {"type": "function", "function": call} if rng.random() < 0.5 else call for call in calls
            ]
    return turn


def _options(rng: random.Random, contract: TextContract) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name in ("enable_thinking", "preserve_thinking", "add_generation_prompt"):
        if rng.random() < 0.5:
            options[name] = rng.random() < 0.5
    for name in ("enable_thinking", "preserve_thinking"):
        if rng.random() < 0.1:
            options[name] = None  # neither absent, nor true, nor false
    if rng.random() < 0.5:
        options["reasoning_effort"] = rng.choice([*contract.efforts, "invalid"])
    if rng.random() < 0.4:
        options["tools"] = [
            {"name": _words(rng, contract), "parameters": _value(rng, contract, 3)}
            for _ in range(rng.randint(0, 2))
        ]
    return options


def _content(rng: random.Random, contract: TextContract) -> Any:
    choice = rng.random()
    if choice < 0.1:
        return None
    if choice < 0.2:
        return [{"type": "text", "text": _words(rng, contract)} for _ in range(rng.randint(0, 3))]
    if choice < 0.22:
        return [{"type": "image"}]
    if choice < 0.27:
        return f"<tool_response>{_words(rng, contract)}</tool_response>"
    return _words(rng, contract)


def _words(rng: random.Random, contract: TextContract) -> str:
    spelled: Sequence[str] = [
        *contract.control_atoms,
        "<|image_pad|>",
        "\x1c",
        "\u3000",
        "\ufeff",
        '"\\',
        "\x07",
        *CORPUS,
    ]
    return "".join(rng.choices(spelled, k=rng.randint(0, 3)))


def _value(rng: random.Random, contract: TextContract, depth: int) -> Any:
    plain = [None, True, False, 0, -7, 2.5, 1e-7, 10**21, _words(rng, contract)]
    if not depth or rng.random() < 0.6:
        return rng.choice(plain)
    if rng.random() < 0.5:
        return [_value(rng, contract, depth - 1) for _ in range(rng.randint(0, 3))]
    return {_words(rng, contract): _value(rng, contract, depth - 1) for _ in range(rng.randint(0, 3))}
