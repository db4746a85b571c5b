"""The battery `text` bites: every fact is rejected for its own reason."""

from assay.mutations.battery import BatteryContext
from assay.mutations.runner import run_batteries
from assay.mutations.text import BATTERY


def test_no_mutation_of_the_text_pipeline_survives() -> None:
    run = run_batteries(["text"], BatteryContext())
    assert (run.survivors, run.killed_elsewhere) == ([], [])
    assert run.batteries["text"].killed == run.batteries["text"].total == 53


def test_every_kind_of_fact_is_mutated() -> None:
    fields = {one.field for one in BATTERY.mutations(BatteryContext())}
    assert {
        "tokenizer.json: pattern", "tokenizer.json: normalizer", "tokenizer.json: added tokens", "tokenizer.json: merges",
        "tokenizer.json: vocabulary", "tokenizer_config.json: special ids", "chat_template.jinja", "segments",
    } <= fields  # fmt: skip
