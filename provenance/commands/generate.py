"""`assay generate PATH`: tokens from the MLX model of a checkpoint or an artifact, from ids or from a chat prompt."""

import argparse
import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.provenance.commands.stream_options import add_stream_options, check_stream_options
from assay.provenance.interrupts import Interrupts
from assay.provenance.output import emit, emit_json, emit_json_line, emit_piece, output_format, say
from assay.spec.errors import Finding, usage_error
from assay.spec.verdicts import ExitCode

if TYPE_CHECKING:
    from assay.impl.model.generation import Report, Request
    from assay.impl.model.loader import Loaded
    from assay.impl.stores.artifact.opened import Artifact
    from assay.impl.text.engine import Tokenizer
    from assay.provenance.streaming import StreamedRun
    from assay.spec.text import TextContract

MOST_RESERVED: Final = 8192
"""Rows of the caches that are reserved at the start; beyond them they grow, so that neither a lying configuration nor
a bold `--max-new` takes memory for tokens that may never come."""
WORTH: Final = (
    "private seam: what this implementation computes with these weights; no profile is supported, so nothing is "
    "said about what a supported product would answer"
)

_IDS: Final = re.compile(r" *-?[0-9]{1,20} *(, *-?[0-9]{1,20} *)*")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.epilog = (
        "Example: assay generate CHECKPOINT --ids 5,6,7 --max-new 16 --temperature 0 --private --format json. "
        "No profile is supported yet, so the public route refuses; --private says what the output is worth."
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="checkpoint directory, or artifact")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--ids", metavar="N,N,...", help="token ids of the prompt")
    what.add_argument("--prompt", metavar="TEXT", help="one user message, rendered with the chat template")
    what.add_argument("--messages", type=Path, metavar="FILE", help="a conversation: a JSON list of messages")
    parser.add_argument(
        "--tokenizer", type=Path, metavar="DIR",
        help="the tokenizer that an artifact names by digest (default: the embedded one, if it is that)",
    )  # fmt: skip
    parser.add_argument("--system", metavar="TEXT", help="a system message before --prompt")
    parser.add_argument("--max-new", type=int, default=64, metavar="N", help="most new tokens (default: 64)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy (default)")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="0 keeps all (default)")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="1 keeps all (default)")
    parser.add_argument("--min-p", type=float, default=0.0, metavar="P", help="0 keeps all (default)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws (default: 0)")
    parser.add_argument("--ignore-eos", action="store_true", help="go on after a stop token")
    parser.add_argument(
        "--chunk", type=int, default=512, metavar="N", help="tokens of a prefill chunk (default: 512)"
    )
    parser.add_argument(
        "--dump", type=Path, metavar="DIR", help="write a capture of the whole run for assay diff"
    )
    parser.add_argument(
        "--fast", action="store_true", help="a fast BLAS and whole products: rows may depend on neighbours"
    )
    add_stream_options(parser)
    parser.add_argument(
        "--private", action="store_true", help="the private seam: run a profile that is not supported"
    )


def run(arguments: argparse.Namespace) -> int:
    """Generates and prints ids, text and statistics."""
    _check(arguments)
    if not arguments.private:
        from assay.impl.model.clauses import STAGE, UNSUPPORTED
        from assay.spec.errors import ContractError

        raise ContractError(
            Finding.of(
                UNSUPPORTED, STAGE, str(arguments.path), expected="a supported profile", got="none is supported",
                hint="say --private; the output is then stamped `seam: private`",
            )
        )  # fmt: skip
    if not arguments.path.is_dir() and not arguments.path.is_file():
        raise usage_error("PATH", expected="a checkpoint directory or an artifact", got=str(arguments.path))
    if arguments.path.is_dir() and arguments.tokenizer is not None:
        raise usage_error("--tokenizer", expected="an artifact as PATH", got="a directory, which has its own")
    return _generate(arguments)


def _opened(path: Path) -> "Artifact | None":
    """Returns the admitted artifact at a path, or None for a directory.

    A refused artifact's report is printed all the same, that of a structural fixture too, which is admitted and
    computes nothing.
    """
    if path.is_dir():
        return None
    from assay.impl.stores.artifact.opened import Artifact, NotAdmittedError, StructuralOnlyError

    try:
        return Artifact.open(path, is_private=True)
    except (NotAdmittedError, StructuralOnlyError):
        from assay.provenance.kinds import judge_path
        from assay.spec.judgement import JudgeOptions

        emit_json_line(judge_path(path, JudgeOptions(is_private=True)).document(str(path)))
        raise


def _text_folder(arguments: argparse.Namespace, artifact: "Artifact | None") -> Path:
    """Returns where the tokenizer lies: in the checkpoint, or wherever the one is that the artifact names by digest."""
    if artifact is None:
        return Path(arguments.path)
    from assay.provenance.miniature import tokenizer_folder

    return tokenizer_folder(artifact, arguments.tokenizer)


def _generate(arguments: argparse.Namespace) -> int:
    from assay.impl.model.backend import choose_numerics

    artifact = _opened(arguments.path)  # before anything is allocated for it
    numerics = choose_numerics(fast=arguments.fast)  # before the first import of MLX

    from assay.impl.model.loader import load_artifact, load_checkpoint

    folder = _text_folder(arguments, artifact)
    tokenizer = _tokenizer(folder)
    contract = _contract(tokenizer) if artifact is None else _artifact_contract(artifact)
    prompt, prompt_bytes = _prompt(arguments, tokenizer, folder)
    with ExitStack() as stack:
        streamed: StreamedRun | None = None
        if artifact is None:
            loaded = load_checkpoint(arguments.path, numerics)
        elif arguments.stream:
            from assay.provenance import streaming

            asked = len(prompt) + arguments.max_new
            streamed = stack.enter_context(streaming.StreamedRun(arguments, artifact, numerics, asked))
            loaded = streamed.opened.loaded
        else:
            loaded = load_artifact(artifact, arguments.path, numerics)
        _write(arguments, loaded, tokenizer, contract, prompt, prompt_bytes, streamed)
    return ExitCode.OK


def _write(
    arguments: argparse.Namespace,
    loaded: "Loaded",
    tokenizer: "Tokenizer | None",
    contract: "TextContract | None",
    prompt: list[int],
    prompt_bytes: bytes | None,
    streamed: "StreamedRun | None",
) -> None:
    from assay.impl.model.bank import Bank
    from assay.impl.model.generation import Report, generate
    from assay.impl.model.loader import stop_ids

    geometry = loaded.model.geometry
    rows = min(geometry.context, len(prompt) + arguments.max_new, MOST_RESERVED)
    bank = Bank(loaded.model, rows=rows)
    report = Report()
    stops = frozenset() if arguments.ignore_eos else stop_ids(loaded)
    has_no_file = arguments.path.is_file()  # an artifact has no generation_config.json to ask
    is_chat = prompt_bytes is not None or has_no_file
    if is_chat and stops and contract is not None:
        stops |= frozenset(contract.stop_ids)
    request = _request(arguments, prompt, stops, _valid_ids(tokenizer, contract, geometry.physical_rows))
    streams = output_format(arguments) != "json" and tokenizer is not None
    decoder = tokenizer.decoder(skip_special=True) if tokenizer is not None else None
    ids: list[int] = []
    text: list[str] = []
    with Interrupts() as interrupts:
        dump = _Dump(arguments.dump, interrupts)
        new_trace = dump.new_trace if streamed is None else lambda: streamed.new_trace(dump.new_trace())
        for one in generate(bank, request, report, new_trace=new_trace, listen=dump.listener):
            ids.append(one)
            if decoder is not None:
                text.append(decoder.push(one))
                if streams:
                    emit_piece(text[-1])
    if decoder is not None:
        text.append(decoder.finish())
    dump.write([*prompt, *ids], bank.state(), prompt_bytes)
    _print(
        arguments,
        loaded,
        report,
        ids,
        "".join(text) if tokenizer is not None else None,
        text[-1:] if streams else None,
        streamed,
    )


def _print(
    arguments: argparse.Namespace,
    loaded: "Loaded",
    report: "Report",
    ids: list[int],
    text: str | None,
    rest: list[str] | None,
    streamed: "StreamedRun | None",
) -> None:
    from dataclasses import asdict

    from assay.impl.model.sizes import state_size
    from assay.spec.documents.generation import Generation, SparseWork, Statistics

    tokens = report.prompt_tokens + report.new_tokens
    statistics = Statistics(
        prompt_tokens=report.prompt_tokens,
        new_tokens=report.new_tokens,
        prefill_seconds=round(report.prefill_seconds, 6),
        decode_seconds=round(report.decode_seconds, 6),
        weight_bytes=loaded.resident_bytes,
        state_bytes=state_size(loaded.model.geometry, tokens, cache_bytes=4).total,
        sparse=SparseWork(**asdict(report.counters)),
        streaming=None if streamed is None else streamed.statistics(),
    )
    generation = Generation(
        ids=ids, text=text, ended_by=report.ended_by, seam="private", worth=WORTH,
        numerics="deterministic" if loaded.model.numerics.is_deterministic else "fast", statistics=statistics,
    )  # fmt: skip
    if output_format(arguments) == "json":
        emit_json(generation.model_dump(by_alias=True))
        return
    emit("".join(rest) if rest is not None else ",".join(map(str, ids)))
    if not arguments.quiet:
        decoded = max(report.new_tokens - 1, 0) / report.decode_seconds if report.decode_seconds else 0.0
        say(
            f"seam: private; {report.prompt_tokens} tokens in {report.prefill_seconds:.2f} s, "
            f"{report.new_tokens} new, {decoded:.1f} a second, ended by {report.ended_by}"
        )
        if streamed is not None:
            say(streamed.sentence())


class _Dump:
    """Collects a capture on the way, if one was asked for."""

    def __init__(self, folder: Path | None, interrupts: Interrupts) -> None:
        self._folder = folder
        self._interrupts = interrupts
        self._recording: Any = None
        if folder is not None:
            from assay.impl.model.dump import Recording

            self._recording = Recording()

    @property
    def listener(self) -> Any:
        """What generation tells of every chunk; None without a dump, so that only the newest logits are made."""
        if self._folder is None:
            return None
        return lambda trace, _done, tokens: self._recording.add(trace, [tokens])

    def new_trace(self) -> Any:
        """Returns the trace of a chunk."""
        from assay.impl.model.trace import Recorder, Trace

        return (Trace if self._folder is None else Recorder)(self._interrupts.check)

    def write(self, tokens: list[int], after: Any, prompt: bytes | None) -> None:
        """Writes the capture: the tokens that were run; the last chosen id was not."""
        if self._folder is None:
            return
        from assay import __version__
        from assay.impl.captures.writing import write_capture
        from assay.spec.documents.capture import Producer

        producer = Producer(
            name="assay generate", version=__version__, detail="assay.impl.model, MLX, private seam"
        )
        arrays = self._recording.arrays(after)
        write_capture(self._folder, arrays, tokens[: after.frontier], producer=producer, prompt=prompt)


def _check(arguments: argparse.Namespace) -> None:
    check_stream_options(arguments)
    least = (
        ("--max-new", arguments.max_new, 1),
        ("--chunk", arguments.chunk, 1),
        ("--top-k", arguments.top_k, 0),
    )
    for name, value, lowest in least:
        if value < lowest:
            raise usage_error(name, expected=f"at least {lowest}", got=value)
    if not 0 <= arguments.temperature < 1e6:
        expected = "a number from 0 to below 1000000"
        raise usage_error("--temperature", expected=expected, got=arguments.temperature)
    for name, value in (("--top-p", arguments.top_p), ("--min-p", arguments.min_p)):
        if not 0 <= value <= 1:
            raise usage_error(name, expected="a number in 0 .. 1", got=value)
    if output_format(arguments) not in {"json", "pretty"}:
        raise usage_error("--format", expected="pretty or json", got=arguments.format)
    if arguments.dump is not None and arguments.dump.exists() and not arguments.dump.is_dir():
        raise usage_error("--dump", expected="a folder, or nothing there yet", got="a file")
    if arguments.system is not None and arguments.prompt is None:
        raise usage_error("--system", expected="a --prompt beside it", got="none")


def _request(
    arguments: argparse.Namespace, prompt: list[int], stops: frozenset[int], valid_ids: int
) -> "Request":
    from assay.impl.model.generation import Request
    from assay.impl.model.sampler import Policy

    policy = Policy(arguments.temperature, arguments.top_k, arguments.top_p, arguments.min_p, arguments.seed)
    return Request(prompt, arguments.max_new, stops, valid_ids, policy, arguments.chunk)


def _tokenizer(folder: Path) -> "Tokenizer | None":
    """Returns the tokenizer of a checkpoint, or None when it has none."""
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json")):
        return None
    from assay.impl.text.engine import Tokenizer

    return Tokenizer.of_directory(folder)


def _valid_ids(tokenizer: "Tokenizer | None", contract: "TextContract | None", physical_rows: int) -> int:
    """Returns the ids that may be chosen: the tokenizer's, or where it is not at hand those of the profile."""
    if tokenizer is not None:
        return min(len(tokenizer.facts.vocabulary) + len(tokenizer.facts.added), physical_rows)
    return physical_rows if contract is None else min(contract.effective_ids, physical_rows)


def _artifact_contract(artifact: "Artifact") -> "TextContract | None":
    """Returns the text contract of the profile that an artifact was admitted as; its tokenizer need not be at hand."""
    from assay.spec.profiles import PROFILE_IDS
    from assay.spec.text import text_contract

    name = PROFILE_IDS.get(str(artifact.descriptor.entries["ds4.model.profile_id"].python()))
    return None if name is None else text_contract(name)


def _prompt(
    arguments: argparse.Namespace, tokenizer: "Tokenizer | None", folder: Path
) -> tuple[list[int], bytes | None]:
    """Returns the ids of the prompt, and its bytes when it was text."""
    if arguments.ids is not None:
        if not _IDS.fullmatch(arguments.ids):
            raise usage_error("--ids", expected="numbers with commas between", got=arguments.ids)
        return [int(one) for one in arguments.ids.split(",")], None
    if tokenizer is None and arguments.path.is_file():
        expected = "the folder of the tokenizer that the artifact names by digest, for text"
        raise usage_error("--tokenizer", expected=expected, got="none at hand")
    if tokenizer is None:
        raise usage_error("PATH", expected="a tokenizer in the checkpoint, for text", got="none")
    from assay.impl.text.chat import ChatRenderer

    contract = _contract(tokenizer)
    if contract is None:
        raise usage_error("PATH", expected="the tokenizer of a packaged profile, for text", got="another one")
    renderer = ChatRenderer.of_directory(folder, contract)
    prompt = renderer.render(_messages(arguments), {"add_generation_prompt": True})
    return tokenizer.encode_prompt(prompt), prompt.stream


def _contract(tokenizer: "Tokenizer | None") -> "TextContract | None":
    """Returns the text contract of the packaged profile that has these ids and added tokens."""
    from assay.spec.profiles import PROFILES
    from assay.spec.text import text_contract

    if tokenizer is None:
        return None
    for profile in PROFILES:
        contract = text_contract(profile)
        spelled = tuple((one.id, one.content) for one in contract.added)
        if spelled == tuple((one.id, one.content) for one in tokenizer.facts.added):
            return contract
    return None


def _messages(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    if arguments.messages is None:
        system = [] if arguments.system is None else [{"role": "system", "content": arguments.system}]
        return [*system, {"role": "user", "content": arguments.prompt}]
    from assay.impl.stores.strict_json import parse_json

    try:
        found = parse_json(arguments.messages.read_bytes(), stage="usage", where=str(arguments.messages))
    except OSError as error:
        raise usage_error("--messages", expected="a file", got=error.strerror) from None
    if not isinstance(found, list):
        raise usage_error("--messages", expected="a JSON list of messages", got=type(found).__name__)
    return found
