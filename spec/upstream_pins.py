"""Which upstream packages speak with authority for numbers, down to the digests of the files that computed them.

The published contract pins another revision of the same model code. Neither of its two source digests equals the
wheel's; the wheel is therefore an authority of its own, named as such in every fixture, and never passed off as the
contract's revision.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class PackagePin:
    """One pinned distribution.

    Attributes:
        package: name in the package index.
        version: its version.
        wheel_sha256: digest of the wheel that was captured with.
        distribution_sha256: over the sorted lines `path,hash,size` of its RECORD, hashed files only, without what an
            installer adds; two installs of one wheel agree in it.
        sources: file inside the package -> SHA-256.
        is_pure: whether every platform has the same wheel; if not, the digests name the one captured with.
    """

    package: str
    version: str
    wheel_sha256: str
    distribution_sha256: str
    sources: dict[str, str]
    is_pure: bool


TRANSFORMERS: Final = PackagePin(
    "transformers",
    "5.24.0",
    "ff5ebedf9359f94bb63772b6380eba6e7104d010cbbb2cb82c788817ea7486f6",
    "2d2ee82d681735e2757f242e49cfe6e94ca8dae2d13651e521a9eb99a4a8e56c",
    {
        "transformers/cache_utils.py": "29651e0d89cc34d1af4b7d5d7f2c5dd81b584c8c5336f15652218640ea8465e5",
        "transformers/models/qwen4_exp/configuration_qwen4_exp.py": (
            "5465f28fbfc70c925613c44c5cef2682376cc82f488dcf9fcc5245377094bc07"
        ),
        "transformers/models/qwen4_exp/modeling_qwen4_exp.py": (
            "5da1c973d2db618d22d58097ca6b76d29c16db6b1f93a1ff914e52fcb9ce3e22"
        ),
        "transformers/models/qwen4_exp/modular_qwen4_exp.py": (
            "740b2526f1cb6f20f851106333b876395d46fd19734423557df63fcff504ac69"
        ),
    },
    is_pure=True,
)
TORCH: Final = PackagePin(
    "torch",
    "2.13.0",
    "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
    "c3aa0e308659ed409cbd177aafdc7212cc717662ccadd8ce3de56b944bfd2cce",
    {},
    is_pure=False,
)
PINS: Final = {pin.package: pin for pin in (TRANSFORMERS, TORCH)}

CONTRACT_REVISION: Final = "42ca97014c85d71a88ad60d55f08cb9fb4d26e2c"
CONTRACT_SOURCES: Final[dict[str, str]] = {
    "transformers/models/qwen4_exp/configuration_qwen4_exp.py": (
        "26b47995740e3bc596b44b2011ee6c3d971d46136438b00dd5fad9557bec4254"
    ),
    "transformers/models/qwen4_exp/modeling_qwen4_exp.py": (
        "91e9b1e9c74efe373cd989fe1974a8fa305f4aad43628dbcbd03dac20437814f"
    ),
}
"""What the published contract pins (5.16.0.dev0 at that commit); its text is not available to this project."""


def contract_difference() -> dict[str, bool]:
    """Returns, for each source that the published contract pins, whether the captured wheel has the same bytes."""
    return {path: TRANSFORMERS.sources[path] == digest for path, digest in CONTRACT_SOURCES.items()}


DIFFERENCE_NOTE: Final = (
    "The published contract pins transformers at commit 42ca9701 (5.16.0.dev0); these captures come from the 5.24.0 "
    "wheel. Both pinned sources differ by digest, and the older text is not at hand, so what differs inside is not "
    "known line by line. What is known: the contract's facts (geometry, hash, norms, stages, selection) hold in the "
    "wheel as far as the captures exercise them, and the wheel itself replaces masked ids by the end-of-text id "
    "before it hashes, except in a call of a single token."
)
