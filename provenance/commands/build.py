"""`assay build`: make an artifact from a checkpoint, plan it, repack a canonical GGUF, or write the structural fixture."""

import argparse
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.provenance.output import emit, emit_json, output_format, say
from assay.provenance.paths import checkpoint_directory, evidence_directory
from assay.provenance.progress import progress_bar
from assay.spec.errors import AssayError, Finding, printable, usage_error
from assay.spec.verdicts import ExitCode

if TYPE_CHECKING:
    from assay.impl.stores.expert_major.store import RecordDigests

_SHOWN = 40


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument(
        "source", nargs="?", type=Path, metavar="SOURCE",
        help="checkpoint directory, or canonical GGUF of a routed family (1 to 3) to repack; a plan without one is of the "
        "real checkpoint's description",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the file to write")
    parser.add_argument(
        "--structural", action="store_true",
        help="write the public profile's geometry at its true size, without payload, sparse",
    )  # fmt: skip
    parser.add_argument(
        "--miniature", action="store_true", help="build the embedded private miniature (needs --private)"
    )
    parser.add_argument(
        "--dry-run", action="store_true",
        help="only say where each tensor of SOURCE goes; headers are enough. With -o the report is kept",
    )  # fmt: skip
    parser.add_argument(
        "--check", type=Path, metavar="REPORT", help="compare a kept report with today's dry run"
    )
    parser.add_argument(
        "--codec", metavar="NAME", help="encode experts, such as mlx-affine4; left out, all bits are kept"
    )
    parser.add_argument(
        "--page-bytes",
        type=int,
        metavar="N",
        help="bytes of a page of rows: a power of two from 4096 to 16777216 (default: 16384)",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace an existing file, also one that appears meanwhile"
    )
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="the real checkpoint's description")
    parser.add_argument(
        "--private", action="store_true", help="build what only the private seam admits; stamps the result"
    )


def run(arguments: argparse.Namespace) -> int:
    """Builds, plans or repacks; every reason of a refusal is printed."""
    _check_usage(arguments)
    try:
        if arguments.dry_run or arguments.check is not None:
            return _dry_run(arguments)
        _sweep(arguments.output)
        if arguments.structural:
            return _structural(arguments)
        if arguments.source is not None and not arguments.source.is_dir():
            return _repack(arguments)
        return _build(arguments)
    except AssayError as error:
        findings: tuple[Finding, ...] = getattr(error, "findings", (error.finding,))
        if len(findings) == 1:
            raise
        return _refused(findings)


def _check_usage(arguments: argparse.Namespace) -> None:
    """Refuses what a kind of build lacks, and every option that it would pass over in silence."""
    is_plan = arguments.dry_run or arguments.check is not None
    is_made = arguments.structural or arguments.miniature
    if is_made and arguments.source is not None:
        raise usage_error(
            "SOURCE", expected="nothing beside --structural or --miniature", got=str(arguments.source)
        )
    if arguments.structural and arguments.miniature:
        raise usage_error("--miniature", expected="one of --structural and --miniature", got="both")
    if is_plan and is_made:
        raise usage_error("--dry-run", expected="a checkpoint directory", got="no source")
    if is_plan and arguments.source is None:
        arguments.source = checkpoint_directory(arguments.checkpoint)
    elif arguments.checkpoint is not None:
        raise usage_error("--checkpoint", expected="--dry-run or --check without SOURCE", got="neither")
    if arguments.source is None and not is_made:
        raise usage_error("SOURCE", expected="a checkpoint directory or a GGUF file", got="nothing")
    if arguments.output is None and not is_plan:
        raise usage_error("-o", expected="the file to write", got="nothing")
    if arguments.force and arguments.output is None:
        raise usage_error("--force", expected="-o beside it", got="no -o")
    is_repack = not is_plan and arguments.source is not None and arguments.source.is_file()
    what = "a plan" if is_plan else "the structural fixture" if arguments.structural else "a repack"
    for option, value in (("--codec", arguments.codec), ("--page-bytes", arguments.page_bytes)):
        if value is not None and (is_plan or arguments.structural or is_repack):
            raise usage_error(option, expected="a checkpoint that is built", got=what)


def _sweep(target: Path) -> None:
    """Removes what killed builds of this target left, and says so: a build starts over."""
    from assay.impl.stores.publication import sweep

    for path in sweep(target):
        say(f"assay: removed {printable(path.name)}, which a killed build of this target left; building anew")


def _structural(arguments: argparse.Namespace) -> int:
    from assay.impl.stores.artifact.structural import write_structural
    from assay.impl.stores.target import check_target

    check_target(arguments.output, (), replace=arguments.force)
    plan = write_structural(arguments.output, replace=arguments.force)
    return _show(
        arguments,
        kind="structural",
        source=None,
        facts={"tensors": len(plan.tensors), "headerBytes": len(plan.head), "payload": "absent"},
        profile_id="qwen4exp-base-v1",
        physical_profile_id="qwen4exp-phase3-fixture-bf16-v1",
        seam=_seam(arguments),
    )


def _dry_run(arguments: argparse.Namespace) -> int:
    from assay.impl.stores.artifact.conversion import compare_report, save_report
    from assay.impl.stores.artifact.origin import dry_run, refuse_public_route
    from assay.impl.stores.target import check_target

    if arguments.output is not None:
        sources = arguments.source.iterdir() if arguments.source.is_dir() else ()
        check_target(arguments.output, sources, replace=arguments.force)
    if not arguments.private:
        refuse_public_route(arguments.source, dry_run=True)
    report = dry_run(arguments.source, is_private=arguments.private)
    if arguments.check is not None:
        findings = compare_report(arguments.check, report)
        if findings:
            return _refused(tuple(findings), ExitCode.EVIDENCE)
    if arguments.output is not None:
        save_report(arguments.output, report, replace=arguments.force)
    if output_format(arguments) == "json":
        emit_json(report)
    else:
        emit("\n".join(_report_lines(report)))
    return ExitCode.OK


def _build(arguments: argparse.Namespace) -> int:
    from assay.impl.stores.artifact.build import PAGE_BYTES, build_artifact
    from assay.impl.stores.artifact.origin import PRIVATE, refuse_public_route

    if not arguments.private:
        if arguments.miniature:
            raise AssayError(
                Finding.of(PRIVATE, "build", "miniature", expected="the public profile", got="a private geometry",
                           hint="--private builds it, and stamps the result `seam: private`")
            )  # fmt: skip
        refuse_public_route(arguments.source, dry_run=False)
    source = arguments.source
    if arguments.miniature:
        from assay.provenance.miniature import miniature_checkpoint

        source = miniature_checkpoint()
    with _progress(quiet=arguments.quiet) as show:
        built = build_artifact(
            source,
            arguments.output,
            codec=arguments.codec,
            page_bytes=arguments.page_bytes if arguments.page_bytes is not None else PAGE_BYTES,
            replace=arguments.force,
            progress=show,
        )
    _keep_digests(built.digests)
    return _show(
        arguments,
        kind="artifact",
        source=str(source),
        profile_id=built.descriptor.profile_id,
        physical_profile_id=built.descriptor.physical_profile_id,
        payload_sha256=built.digests.payload_sha256.hex(),
        report=built.report,
        seam=_seam(arguments),
    )


def _repack(arguments: argparse.Namespace) -> int:
    from assay.impl.stores.expert_major.repack import repack

    with _progress(quiet=arguments.quiet) as show:
        made = repack(arguments.source, arguments.output, replace=arguments.force, progress=show)
    _keep_digests(made.digests)
    header = made.manifest.header
    return _show(
        arguments,
        kind="repack",
        source=str(arguments.source),
        payload_sha256=header.payload_sha256.hex(),
        facts={
            "family": header.family,
            "layers": header.layer_count,
            "experts": header.expert_count,
            "sourceSha256": header.source_sha256.hex(),
        },
        seam=_seam(arguments),
    )


def _keep_digests(digests: "RecordDigests") -> None:
    """Keeps the digests of the records for verified reads on this machine; the file is right without them."""
    from assay.impl.stores.expert_major.record_digests import save_digests

    try:
        save_digests(evidence_directory(), digests, "build")
    except (AssayError, OSError) as error:
        why = error.finding.line if isinstance(error, AssayError) else error.strerror
        say(f"assay: the file is in place; the digests of its records could not be kept: {why}")


def _seam(arguments: argparse.Namespace) -> str | None:
    """Returns the stamp: whatever is made with the seam open says so, even if it would have been made without."""
    return "private" if arguments.private else None


def _show(arguments: argparse.Namespace, **fields: Any) -> int:
    from assay.spec.documents.build import Build

    status = arguments.output.stat()
    document = Build.model_validate(
        {
            "target": str(arguments.output),
            "file_bytes": status.st_size,
            "allocated_bytes": 512 * status.st_blocks,
            **fields,
        }
    ).model_dump(by_alias=True)
    if output_format(arguments) == "json":
        emit_json(document)
        return ExitCode.OK
    seam = " [seam: private]" if document["seam"] else ""
    lines = [f"{document['target']}: {document['kind']}: {document['file_bytes']:,} bytes{seam}"]
    lines += [f"  {key}: {document[key]}" for key in ("profile_id", "physical_profile_id", "payload_sha256")
              if document[key] is not None]  # fmt: skip
    if document["report"] is not None:
        lines += _report_lines(document["report"])[1:]
    emit("\n".join(lines))
    return ExitCode.OK


def _report_lines(report: dict[str, Any]) -> list[str]:
    seam = " [seam: private]" if report["seam"] else ""
    lines = [f"{report['kind']}: {report['profileId']}: {report['sourceTensors']} tensors{seam}"]
    lines += [
        f"  {name:<16} {one['tensors']:>6} tensors {one['bytes']:>19,} bytes"
        + (f"  ({one['policy']})" if one["policy"] else "")
        for name, one in report["classes"].items()
    ]
    lines.append(f"  {'total':<16} {report['sourceTensors']:>6} tensors {report['sourceBytes']:>19,} bytes")
    lines.append(f"  report SHA-256 {report['reportSha256']}")
    return lines


def _refused(findings: tuple[Finding, ...], code: ExitCode = ExitCode.FAILED) -> int:
    for finding in findings[:_SHOWN]:
        say(f"assay: error: {finding.line}")
    if len(findings) > _SHOWN:
        say(f"assay: and {len(findings) - _SHOWN} more findings")
    hint = next((finding.hint for finding in findings if finding.hint), "")
    if hint:
        say(f"hint: {hint}")
    return code


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Shows bytes with rate and time left; workers on several threads may advance it."""
    lock = threading.Lock()
    with progress_bar(quiet=quiet, bytes_=True) as show:

        def advance(what: str, done: int, total: int) -> None:
            with lock:
                show(what, done, total)

        yield advance
