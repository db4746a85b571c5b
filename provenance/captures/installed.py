"""Looks at the upstream packages that are installed and compares them with their pins."""

import hashlib
from importlib import metadata
from typing import Final

from assay.spec.clauses import Authority, declare
from assay.spec.documents.fixture import ProducerPin, SourceFile
from assay.spec.errors import EvidenceError, Finding
from assay.spec.upstream_pins import PINS, PackagePin

INSTALLED: Final = declare(
    "capture.upstream.installed", Authority.PIN,
    "The installed upstream packages have the pinned versions and source digests.",
    source="AFN-014", cause="another release of transformers or torch, or a file of it edited in place",
    fix="pip install 'assay[capture]' into a clean environment",
)  # fmt: skip


def installed_pins() -> dict[str, ProducerPin]:
    """Returns the pins of the installed packages, as fixtures record them.

    Raises:
        EvidenceError: `capture.upstream.installed`.
    """
    return {name: _inspect(pin) for name, pin in PINS.items()}


def distribution_digest(package: str) -> str:
    """Returns the SHA-256 over the sorted hashed lines of a distribution's RECORD, without what installers add."""
    rows = []
    for file in metadata.distribution(package).files or []:
        name = str(file)
        added = name.startswith("..") or name.endswith((".pyc", "INSTALLER", "REQUESTED", "direct_url.json"))
        if file.hash is not None and not added:
            rows.append(f"{name},{file.hash.mode}={file.hash.value},{file.size}")
    return hashlib.sha256("\n".join(sorted(rows)).encode("utf-8")).hexdigest()


def _inspect(pin: PackagePin) -> ProducerPin:
    try:
        distribution = metadata.distribution(pin.package)
    except metadata.PackageNotFoundError:
        raise EvidenceError(
            Finding.of(
                INSTALLED, "capture", pin.package, expected=f"version {pin.version}", got="not installed",
                hint="pip install 'assay[capture]'",
            )
        ) from None  # fmt: skip
    version = distribution.version.split("+")[0]
    digest = distribution_digest(pin.package)
    pairs = [("version", pin.version, version)]
    pairs += [("RECORD", pin.distribution_sha256, digest)] if pin.is_pure else []
    sources = []
    for path, expected in pin.sources.items():
        # The bytes on disk, not RECORD's word for them: an edited file must not pass.
        got = hashlib.sha256(bytes(distribution.locate_file(path).read_bytes())).hexdigest()  # type: ignore[attr-defined]
        pairs.append((path, expected, got))
        sources.append(SourceFile(path=path, sha256=got))
    for what, expected, got in pairs:
        if expected != got:
            raise EvidenceError(
                Finding.of(INSTALLED, "capture", f"{pin.package}: {what}", expected=expected, got=got)
            )
    return ProducerPin(
        package=pin.package,
        version=version,
        wheel_sha256=pin.wheel_sha256 if digest == pin.distribution_sha256 else None,
        distribution_sha256=digest,
        sources=sources,
    )
