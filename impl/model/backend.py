"""Which library multiplies: found out before and after MLX is imported, so that a mode says what it can hold.

MLX's Linux wheel brings the reference BLAS, which sums each output by itself. A BLAS that was loaded globally before
the first import of MLX takes its place; it is fast and chooses a kernel by shape. Nothing here imports MLX at its head.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import mlx.core as mx

    from assay.impl.model.numerics import Numerics

SYMBOL: Final = "cblas_sgemm"
_SHIM: Final = """
#include <string.h>
typedef long long big;
extern void scipy_cblas_sgemm64_(int, int, int, big, big, big, float, const float *, big, const float *, big, float,
                                 float *, big);
extern void scipy_cblas_sgemv64_(int, int, big, big, float, const float *, big, const float *, big, float, float *, big);
void cblas_sgemm(int layout, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc) {
  if (layout == 101 && m == 1 && ta == 111 && (tb == 111 || tb == 112)) {
    if (beta == 0) memset(c, 0, sizeof(float) * n);
    if (tb == 111) scipy_cblas_sgemv64_(101, 112, k, n, alpha, b, ldb, a, 1, beta, c, 1);
    else scipy_cblas_sgemv64_(101, 111, n, k, alpha, b, ldb, a, 1, beta, c, 1);
    return;
  }
  scipy_cblas_sgemm64_(layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
"""
_MALLOPT: Final = ((-8, 1), (-3, 1 << 30), (-1, 1 << 30), (-2, 64 << 20))
"""glibc's options: one arena for all threads, no mapping of its own for arrays up to a GiB, up to a GiB of freed memory
kept, and 64 MiB more whenever there is none."""
_HELD: list[ctypes.CDLL] = []


class Device:
    """What this process knows of its device.

    Attributes:
        failures: evaluations that failed. MLX counts tasks, loses the count of one failure in ten, and with more than
            ten lost every evaluation waits for ever.
    """

    failures = 0


DEVICE: Final = Device()
FAILURES_SURVIVED: Final = 40
"""Failed evaluations after which nothing is begun any more in a process, which would soon wait for ever."""


def choose_numerics(*, fast: bool) -> "Numerics":
    """Returns how reductions are made in this process.

    Args:
        fast: whole products with the fastest BLAS that is found; must come before the first import of MLX to find one.
    """
    if fast:
        keep_freed_memory()
        load_fast_blas()
    from assay.impl.model.numerics import PLAIN, TILE_ROWS, Numerics

    if fast:
        return PLAIN
    return Numerics(is_deterministic=True, tile_rows=0 if are_rows_independent() else TILE_ROWS)


def are_rows_independent() -> bool:
    """Says whether products go through the reference BLAS of MLX's Linux wheel.

    On the GPU and with Apple's Accelerate they don't, nor where a globally loaded BLAS stands before MLX's own.
    """
    import mlx.core as mx

    return sys.platform == "linux" and mx.default_device() == mx.Device(mx.cpu) and not has_global_blas()


def has_global_blas() -> bool:
    """Says whether some library offers `cblas_sgemm` to the whole process, so that MLX takes that one."""
    return hasattr(ctypes.CDLL(None), SYMBOL)


def load_fast_blas() -> str | None:
    """Loads a BLAS in front of MLX's own and returns its path, or None where nothing was found or it is too late.

    Tries a global one that is there already, then NumPy's own OpenBLAS behind a shim of one function, for which a C
    compiler is needed once; the shim is kept in the user's cache.
    """
    if sys.platform != "linux" or "mlx.core" in sys.modules:
        return None
    if has_global_blas():
        return "loaded before"
    library = _numpy_openblas()
    compiler = shutil.which("cc") or shutil.which("gcc")
    if library is None or compiler is None:
        return None
    shim = _built(library, compiler)
    if shim is not None:
        _HELD.append(ctypes.CDLL(os.fspath(shim), ctypes.RTLD_GLOBAL))
        one_thread = getattr(ctypes.CDLL(os.fspath(library)), "scipy_openblas_set_num_threads64_", None)
        if one_thread is not None:
            one_thread(
                1
            )  # the fast mode has two streams; threads of the BLAS beside them wait for each other
    return None if shim is None else os.fspath(shim)


def start(*arrays: "mx.array") -> None:
    """Lets the device begin with arrays while the host goes on; errors come out of a later evaluation, or here."""
    import mlx.core as mx

    mx.async_eval(*arrays)  # type: ignore[no-untyped-call]  # its signature in MLX's stubs has no types


def raise_pending() -> None:
    """Waits for everything that the device was given, and raises the error of any of it.

    An error of an asynchronous evaluation is kept by MLX and raised by the next evaluation that has something to do,
    whosever that is; waiting alone does not raise it.
    """
    import mlx.core as mx

    mx.synchronize()
    for stream in two_streams() if two_streams.cache_info().currsize else ():
        mx.synchronize(stream)
    mx.eval(mx.zeros((1,)) + 1)


@cache
def two_streams() -> "tuple[mx.Stream, mx.Stream]":
    """Returns two streams of the CPU, made when they are first asked for."""
    import mlx.core as mx

    return mx.new_stream(mx.Device(mx.cpu)), mx.new_stream(mx.Device(mx.cpu))


def settle() -> None:
    """Waits until the device is idle and drops the errors of a chunk that was given up, so that no later one gets them."""
    try:
        raise_pending()
    except RuntimeError:
        DEVICE.failures += 1


def keep_freed_memory() -> bool:
    """Makes the C library keep what is freed for the next array, and says whether it could; before MLX has threads.

    MLX's CPU allocator has no cache of its own. By default glibc gives a large array back to the system when it is freed
    and gets zeroed pages for the next one, which takes longer than most operations on it.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    taken = [mallopt(number, value) == 1 for number, value in _MALLOPT]  # every one is asked
    return all(taken)


def _numpy_openblas() -> Path | None:
    import numpy as np

    folder = Path(np.__file__).resolve().parent.parent / "numpy.libs"
    return next(iter(sorted(folder.glob("libscipy_openblas64_*.so"))), None)


def _built(library: Path, compiler: str) -> Path | None:
    """Compiles the shim against one library, into a name that is its digest; a failure means there is none."""
    name = hashlib.sha256(f"{library}\0{_SHIM}".encode()).hexdigest()[:16]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "assay"
    target = home / f"blas-{name}.so"
    if target.is_file():
        return target
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as folder:
            source, made = Path(folder) / "shim.c", Path(folder) / "shim.so"
            source.write_text(_SHIM, encoding="ascii")
            command = [compiler, "-O2", "-shared", "-fPIC", "-o", *map(os.fspath, (made, source, library))]
            subprocess.run(
                [*command, f"-Wl,-rpath,{library.parent}"], check=True, capture_output=True, timeout=60
            )
            made.replace(target)
    except (OSError, subprocess.SubprocessError):
        return None
    return target
