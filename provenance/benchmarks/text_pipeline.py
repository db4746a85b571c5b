"""Text: rendering with origins and tokenizing by segments, against plain Jinja and one flat tokenization."""

import random
from collections.abc import Callable
from typing import Any, Final

from assay.impl.text.chat import ChatRenderer
from assay.impl.text.engine import Tokenizer, backend
from assay.impl.text.miniature import write_tokenizer
from assay.impl.text.template import plain_environment
from assay.provenance.benchmarks.base import BenchContext, measurement, median_seconds
from assay.provenance.gates.text_inputs import CORPUS
from assay.provenance.paths import checkpoint_directory
from assay.spec.documents.bench import Measurement
from assay.spec.text import text_contract

BYTES: Final = 1_000_000
MESSAGES: Final = (1, 100, 1_000, 20_000)
OPTIONS: Final = {"add_generation_prompt": True}


def run(context: BenchContext) -> list[Measurement]:
    """Times conversations of 1 MB of caller text in few and in many messages."""
    directory = checkpoint_directory()
    profile = "qwen4exp" if directory is not None else "miniature"
    if directory is None:
        directory = context.folder / "miniature"
        write_tokenizer(directory)
    contract = text_contract(profile)
    tokenizer = Tokenizer.of_directory(directory)
    renderer = ChatRenderer.of_directory(directory, contract)
    template = plain_environment(None).from_string(
        (directory / "chat_template.jinja").read_text(encoding="utf-8")
    )
    flat = _flat(tokenizer)
    figures: list[Measurement] = []
    for count in MESSAGES:
        turns = conversation(context.seed, count)

        def plain(turns: list[dict[str, Any]] = turns) -> str:
            return template.render(messages=turns, **OPTIONS)

        def ours(turns: list[dict[str, Any]] = turns) -> object:
            return tokenizer.encode_prompt(renderer.render(turns, OPTIONS))

        def usual(plain: Callable[[], str] = plain) -> object:
            return flat.encode(plain(), add_special_tokens=False).ids

        def fast(plain: Callable[[], str] = plain) -> object:
            return flat.encode_batch_fast([plain()], add_special_tokens=False)[0].ids

        ours()  # outside the clock: the first call fills the library's cache of merges
        seconds, usual_s, fast_s = (median_seconds(work, context.rounds) for work in (ours, usual, fast))
        where = (
            f"{profile} files, {BYTES} bytes of caller text in {count} messages, median of {context.rounds}"
        )
        figures += [
            measurement(
                f"text.prompt.{count}", seconds * 1e3, "ms",
                f"{where}; both sides encode without offsets",
                reference=("plain Jinja and tokenizers, without offsets", fast_s * 1e3),
                target=("ratio", "at-most", 1.5),
            ),
            measurement(
                f"text.prompt.{count}.offset-peer", seconds * 1e3, "ms",
                f"{where}; the peer calls `encode`, which makes offsets as well: not the same work",
                reference=("plain Jinja and tokenizers, with offsets", usual_s * 1e3),
            ),
        ]  # fmt: skip
    return figures


def conversation(seed: int, count: int) -> list[dict[str, Any]]:
    """Returns `count` messages of together about `BYTES` bytes, user and assistant by turns."""
    rng = random.Random(seed)  # noqa: S311 - repeatable input
    turns = []
    for index in range(count):
        parts: list[str] = [f"{index}: "]  # no message repeats another
        size = 0
        while size < BYTES // count:
            parts.append(rng.choice(CORPUS))
            size += len(parts[-1].encode())
        turns.append({"role": "assistant" if index % 2 else "user", "content": "".join(parts)})
    return turns


def _flat(tokenizer: Tokenizer) -> Any:
    """Returns the library's own engine with its added tokens, as a flat tokenization uses it."""
    from tokenizers import AddedToken

    engine = backend(tokenizer.facts)
    engine.add_tokens(
        [
            AddedToken(token.content, special=token.special, normalized=False)
            for token in tokenizer.facts.added
        ]
    )
    return engine
