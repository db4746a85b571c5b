"""All batteries by name; a module is imported only when its battery is asked for."""

import importlib
from typing import Final

from assay.mutations.battery import Battery
from assay.spec.errors import usage_error

BATTERIES: Final[dict[str, str]] = {
    "contract": "assay.mutations.contract",
    "fixtures": "assay.mutations.fixtures",
    "expert-store": "assay.mutations.expert_store",
    "ple-store": "assay.mutations.ple_store",
    "store-bytes": "assay.mutations.store_bytes",
    "gguf": "assay.mutations.gguf",
    "model": "assay.mutations.model",
    "scheduler": "assay.mutations.scheduler_battery",
    "trace": "assay.mutations.trace",
    "text": "assay.mutations.text",
    "mathematics": "assay.mutations.mathematics",
}
"""Battery name -> module with a `BATTERY`; in the order in which they run."""


def battery(name: str) -> Battery:
    """Returns one battery.

    Raises:
        UsageError: when no battery has this name.
    """
    if name not in BATTERIES:
        raise usage_error("battery", expected=f"one of {', '.join(BATTERIES)}", got=name)
    found = importlib.import_module(BATTERIES[name]).BATTERY
    if not isinstance(found, Battery):
        raise TypeError(f"{BATTERIES[name]}.BATTERY is not a Battery")
    return found
