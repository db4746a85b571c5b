"""Run documents as `assay gate` writes them: a good one, one where much is wrong, and a hostile one."""

from typing import Any

import pytest

from assay.spec.documents.base import FindingRecord
from assay.spec.documents.run import Run

DIGEST = "3b" * 32


def finding(code: str, where: str, expected: str = "160", got: str = "161", hint: str = "") -> dict[str, str]:
    return {"code": code, "stage": "config", "where": where, "expected": expected, "got": got, "hint": hint}


BATTERY: dict[str, Any] = {
    "schema": "assay.mutation-run/1",
    "batteries": {
        "contract": {"total": 153, "killed": 149, "killed_elsewhere": 1, "survived": 2, "equivalent": 1, "invalid": 0}
    },
    "survivors": [
        {
            "battery": "contract", "id": "derived.gdn_repeat_ratio", "area": "derived",
            "field": "derived.gdn_repeat_ratio.value", "change": "3 -> 2",
            "expected_code": "derived.gdn_repeat_ratio", "got_codes": [],
        },
        {
            "battery": "contract", "id": "norms.q_norm", "area": "norms", "field": "norms.zero_centered[3]",
            "change": "moved to conventional", "expected_code": "norms.classified", "got_codes": [],
        },
    ],
    "killed_elsewhere": [
        {
            "battery": "contract", "id": "config.num_experts", "area": "config", "field": "config.text.num_experts",
            "change": "512 -> 384", "expected_code": "expert_store.experts", "got_codes": ["derived.routed_parameters_total"],
        }
    ],
    "details": {
        "contract": {
            "areas": {
                "identity": {"total": 13, "killed": 13, "by_rule": 3, "by_upstream": 6, "by_pin": 4, "by_form": 0},
                "config": {"total": 48, "killed": 48, "by_rule": 31, "by_upstream": 15, "by_pin": 0, "by_form": 2},
                "derived": {"total": 40, "killed": 39, "by_rule": 39, "by_upstream": 0, "by_pin": 0, "by_form": 0},
                "ple_hash": {"total": 30, "killed": 30, "by_rule": 30, "by_upstream": 0, "by_pin": 0, "by_form": 0},
                "norms": {"total": 22, "killed": 19, "by_rule": 9, "by_upstream": 4, "by_pin": 6, "by_form": 0},
            },
            "pin_only": [
                {
                    "leaves": ["memory_targets.headroom_gib", "memory_targets.swap_delta"],
                    "reason": "A target of the project: nothing upstream and no arithmetic fixes it.",
                }
            ],
            "controls": {"clean pass": True, "forced failure": True},
            "not_run": [],
        }
    },
}  # fmt: skip

COMPONENTS = {
    "contract": ("Contract of Qwen4Exp", "correctness-fixture", "The frozen contract obeys its own rules and agrees with the published description."),
    "checkpoint-reader": ("Checkpoint reader", "implemented", "A described checkpoint is accepted or rejected field by field, without reading payload."),
    "oracles.qsa": ("Oracle: sparse attention", "correctness-fixture", "Selection, order and attention agree with upstream for up to 2,051 visible keys."),
    "oracles.gdn": ("Oracle: gated delta net", "correctness-fixture", "State and output agree with upstream on the miniature."),
    "oracles.ple": ("Oracle: PLE rows", "correctness-fixture", "Row ids agree with upstream for every history that the fixtures hold."),
    "model": ("Reference model in MLX", "structural-only", "The graph has the contract's tensors and stages; its numbers are not yet judged."),
    "stores.expert-major": ("ExpertMajor v2 store", "implemented", "Golden stores of families 1 to 4 are read and written bit for bit."),
    "stores.ple-rows": ("PLE row store", "hypothesis", "Nothing is claimed."),
    "text": ("Text pipeline", "implemented", "Rendering and token ids equal upstream's for the probes that the fixtures hold."),
    "ledger": ("Evidence ledger", "correctness-fixture", "A missing or altered record is found and named."),
}  # fmt: skip


def gate(id_: str, outcome: str, *components: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "outcome": outcome, "components": list(components), **more}


def mixed() -> dict[str, Any]:
    """A run in which something of every kind is wrong."""
    gates = [
        gate("contract.rules", "pass", "contract", title="The contract obeys its own rules.", duration_s=0.412,
             measurements={"clauses": 214, "profiles": ["qwen4exp", "miniature"]}, evidence=DIGEST, required=True),
        gate("contract.checkpoint", "fail", "contract", "checkpoint-reader", title="The real description agrees with the contract.",
             duration_s=1.9, needs=["checkpoint"], reason="2 findings in the real checkpoint's description",
             findings=[finding("config.text.num_experts", "config.json: text_config.num_experts", "512", "384",
                               "the value of another model of the family; compare with `assay explain config.text.num_experts`"),
                       finding("ple.rows.width", "layers.1.ple.embedding", "160", "161")],
             measurements={"files": 14, "tensors": 1294, "payload_bytes_read": 0}),
        gate("mutations.contract", "fail", "contract", title="Every leaf of the contract is guarded.", duration_s=12.7,
             reason="2 mutations survived", measurements={"battery": BATTERY, "workers": 2}, evidence=DIGEST),
        gate("parity.oracle-upstream", "fail", "oracles.qsa", "oracles.gdn", "oracles.ple", duration_s=34.0,
             title="The oracles equal upstream's captures within each operation's tolerance.",
             reason="first difference at layer 3, stage sparse attention",
             findings=[finding("parity.qsa.groups", "layer 3, token 517, index 12", "group 41", "group 40", "a tie: both scores are 0.0")],
             measurements={"ladder": {"rungs": {"prompt-bytes": "equal", "token-ids": "equal", "ple-rows": "equal",
                                                "embedding": "equal", "layer-stage": "differs", "final-logits": "differs"},
                                      "where": "layer 3, sparse_attention, token 517, index 12",
                                      "detail": "expected 0.1171875, got 0.1171951 (65 ulp)"},
                           "arrays": 412, "max_ulp": 65, "max_abs": 7.6e-06, "ties": 3}, evidence=DIGEST),
        gate("capture.check", "inconclusive", "oracles.qsa", title="Regenerated captures equal the committed bytes.",
             needs=["capture"], reason="hung: no result after 600 s, the worker was ended"),
        gate("stores.expert-major.golden", "pass", "stores.expert-major", duration_s=3.1, measurements={"records": 24_576, "bytes": 7_077_888}, evidence=DIGEST),
        gate("stores.ple.sparse-true-size", "pass", "stores.ple-rows", duration_s=0.8, measurements={"rows": 320_001_536}, evidence=DIGEST),
        gate("text.template-parity", "pass", "text", duration_s=4.2, measurements={"prompts": 1_850, "bytes": 912_331}, evidence=DIGEST),
        gate("ledger.detects-damage", "pass", "ledger", duration_s=0.3, measurements={"damages": 31}, evidence=DIGEST),
        gate("model.metal-parity", "not-run", "model", needs=["metal"], reason="no Apple GPU on this machine"),
        gate("model.resident-memory", "not-run", "model", needs=["metal"], reason="no Apple GPU on this machine"),
    ]  # fmt: skip
    labels = [
        {
            "component": name,
            "title": title,
            "label": label,
            "claim": "" if label == "hypothesis" else claim,
            "not_shown": [f"{'structural-only' if label == 'hypothesis' else 'qualified'}: {claim}"],
            "missing": ["`parity.oracle-upstream` has not passed", "evidence of a second machine"][: 2 if "oracle" in name else 1],
            "gates": {one["id"]: one["outcome"] for one in gates if name in one["components"]},
            "stale": ["text.template-parity: changed since: code, the gate itself"] if name == "text" else [],
        }
        for name, (title, label, claim) in COMPONENTS.items()
    ]  # fmt: skip
    labels[0]["gates"]["contract.schema-second-reader"] = "pass"
    labels[-2]["gates"]["text.template-parity"] = "stale"
    return {
        "schema": "assay.run/1", "run": "2026-11-29T22-41-07-a3f1", "outcome": "fail", "gates": gates,
        "report": "reports/out/2026-11-29T22-41-07-a3f1/index.html", "started": "2026-11-29T22:41:07Z",
        "duration_s": 61.4, "seed": 20261129, "labels": labels, "head": DIGEST,
        "environment": {"assay": "0.1.0", "python": "3.11.7", "platform": "Linux-6.1-x86_64", "machine": "x86_64",
                        "device": "cpu", "packages": {"mlx": "0.32.4", "numpy": "2.3.1", "transformers": "5.24.0", "torch": "2.13.0"},
                        "revision": "7eb23d0", "checkpoint": True},
        "support": [{"profile": "qwen4exp-base-v1", "state": "pinned-not-supported",
                     "gates": {f"support.{name}": "not-run" for name in ("scalar-oracle-parity", "artifact-admission",
                               "transactional-state", "physical-run", "context-merge-screen", "target-performance")}}],
        "not_claimed": ["That generated text is good: no gate judges quality.",
                        "That the real 360 GB of weights are intact: `--payload` was not asked for."],
    }  # fmt: skip


def good() -> dict[str, Any]:
    """The same run with nothing wrong, except what this machine can't run."""
    run = mixed()
    run["run"], run["outcome"] = "2026-11-30T09-02-55-77c0", "pass"
    for one in run["gates"]:
        if one["outcome"] in {"fail", "inconclusive"}:
            one |= {"outcome": "pass", "reason": "", "findings": []}
    battery = {**BATTERY, "survivors": [], "killed_elsewhere": []}
    battery["batteries"] = {
        "contract": {**BATTERY["batteries"]["contract"], "killed": 152, "killed_elsewhere": 0, "survived": 0}
    }
    run["gates"][2]["measurements"] = {"battery": battery, "workers": 2}
    run["gates"][3]["measurements"] = {
        "ladder": {"rungs": {"prompt-bytes": "equal", "token-ids": "equal"}},
        "arrays": 412,
    }
    for one in run["labels"]:
        one["stale"] = []
        one["gates"] = {
            name: "not-run" if state == "not-run" else "pass" for name, state in one["gates"].items()
        }
    return run


HOSTILE = (
    "</style><script>alert(1)</script>\n# forged | `tick` ``two`` [x](javascript:1) ]]> &amp; \x00\x1b[31m\u202e \x85 "
    + "A" * 5000
)


def hostile() -> dict[str, Any]:
    """A run whose every free text tries to break out of the format."""
    run = mixed()
    run["run"] = HOSTILE
    run["not_claimed"] = [HOSTILE]
    run["next_steps"] = [HOSTILE]
    run["environment"] |= {"revision": HOSTILE, "packages": {HOSTILE: HOSTILE}}
    for one in run["labels"]:
        one |= {
            "component": one["component"] + HOSTILE,
            "title": HOSTILE,
            "claim": HOSTILE,
            "missing": [HOSTILE],
            "stale": [HOSTILE],
        }
    for one in run["gates"]:
        one |= {"id": one["id"] + HOSTILE, "reason": HOSTILE, "title": HOSTILE, "components": [HOSTILE],
                "findings": [FindingRecord(code=HOSTILE, stage=HOSTILE, where=HOSTILE, expected=HOSTILE, got=HOSTILE, hint=HOSTILE).model_dump()]}  # fmt: skip
        one["measurements"] = {**one.get("measurements", {}), HOSTILE: HOSTILE, "nan": float("nan")}
    return run


@pytest.fixture
def mixed_run() -> Run:
    return Run.model_validate(mixed())


@pytest.fixture
def good_run() -> Run:
    return Run.model_validate(good())


@pytest.fixture
def hostile_run() -> Run:
    return Run.model_validate(hostile())
