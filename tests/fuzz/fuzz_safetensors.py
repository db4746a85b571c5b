"""Coverage-guided fuzzing of the safetensors header reader; run by hand for as long as you like.

    python tests/fuzz/fuzz_safetensors.py CORPUS_FOLDER -max_total_time=600

What must hold for any bytes: a header or typed findings, no exception; printable one-line findings; and of an accepted
header, that its spans partition the payload, which is computed here from the entries alone.
"""

import struct
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["assay.impl.stores", "json"]):
    from assay.impl.stores.checkpoint.safetensors import read_header

FOLDER = Path(tempfile.mkdtemp(prefix="assay-fuzz-"))


def judge(data: bytes) -> None:
    """Reads the bytes as a file twice: as they are, and as a header with a length that fits."""
    provider = atheris.FuzzedDataProvider(data)
    payload = provider.ConsumeIntInRange(0, 64)
    raw = provider.ConsumeBytes(len(data))
    for content in (raw, struct.pack("<Q", len(raw)) + raw + bytes(payload)):
        path = FOLDER / "f.safetensors"
        path.write_bytes(content)
        header, findings = read_header(path)
        assert header is not None or findings
        assert all(finding.line.isprintable() for finding in findings)
        assert all(finding.code.startswith(("safetensors.", "input.")) for finding in findings)
        if header is not None and not findings:
            owned = sorted((tensor.begin, tensor.end) for tensor in header.tensors)
            ends = [0, *(end for _, end in owned)]
            assert [begin for begin, _ in owned] == ends[:-1]
            assert ends[-1] == header.payload_bytes


if __name__ == "__main__":
    atheris.Setup(sys.argv, judge)
    atheris.Fuzz()
