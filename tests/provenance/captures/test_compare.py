"""`assay diff`: the first rung that differs, where, by how much, and what is not claimed."""

import hashlib
import itertools
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.provenance.captures.arrays import OpenCapture
from assay.provenance.captures.compare import Options, compare
from assay.provenance.cli import main
from assay.provenance.paths import fixture_path
from assay.spec.documents.diff import Diff
from assay.spec.errors import AdmissionError

EMBEDDING = ("embedding", None, "")
READ = ("attn_gr_prepare", 0, "")
GDN = ("gdn", 0, "")
APPLY = ("attn_gr_apply", 0, "")
HEAD = ("output_head", None, "")


@pytest.fixture
def full(hidden: np.ndarray) -> dict:
    """Every rung of a model of one layer."""
    stages = (
        "attn_gr_prepare",
        "gdn",
        "attn_gr_apply",
        "moe_gr_prepare",
        "router",
        "routed_shared_moe",
        "moe_gr_apply",
    )
    ends = ("embedding", "four_stream_residual", "final_gr_mixer", "output_head")
    return {(one, None, ""): hidden for one in ends} | {(one, 0, ""): hidden for one in stages}


def diff(a: Path, b: Path, options: Options | None = None) -> Diff:
    return compare(OpenCapture(a), OpenCapture(b), (str(a), str(b)), options)


def changed(array: np.ndarray, token: int, index: int, by: float) -> np.ndarray:
    copy = array.copy()
    copy[token, index] += array.dtype.type(by)
    return copy


def test_two_equal_captures_are_equal(write: Callable[..., Path], hidden: np.ndarray) -> None:
    a = write("a", {EMBEDDING: hidden, GDN: hidden})
    b = write("b", {EMBEDDING: hidden, GDN: hidden})
    result = diff(a, b)
    assert (result.verdict, result.first, result.counts["equal"]) == ("equal", None, 2)


def test_the_first_rung_is_named_and_later_ones_are_not_blamed(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    a = write("a", {HEAD: hidden, APPLY: hidden, GDN: hidden, READ: hidden})
    b = write("b", {HEAD: -hidden, APPLY: -hidden, GDN: changed(hidden, 2, 5, 0.5), READ: hidden})
    result = diff(a, b)
    assert result.first is not None
    assert (result.first.rung, result.first.token, result.first.index) == ("layers.0.gdn", 2, [5])
    assert result.first.a == float(hidden[2, 5])
    assert result.first.b == float(np.float32(hidden[2, 5] + np.float32(0.5)))
    assert result.last_equal == "layers.0.attn_gr_prepare"
    states = {record.rung: record.state for record in result.rungs}
    assert states["layers.0.attn_gr_apply"] == states["output_head"] == "downstream"


def test_a_missing_rung_is_unknown_and_bounds_the_answer(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    a = write("a", {READ: hidden, GDN: hidden, APPLY: hidden})
    b = write("b", {READ: hidden, APPLY: changed(hidden, 0, 0, 1)})
    result = diff(a, b)
    assert result.first is not None
    assert result.first.rung == "layers.0.attn_gr_apply"
    assert result.unknown_between == ["layers.0.gdn"]


def test_nothing_in_common_is_inconclusive(write: Callable[..., Path], hidden: np.ndarray) -> None:
    assert diff(write("a", {GDN: hidden}), write("b", {HEAD: hidden})).verdict == "inconclusive"


def test_equal_token_ids_alone_prove_nothing(write: Callable[..., Path], hidden: np.ndarray) -> None:
    a = write("a", {GDN: hidden}, token_ids=[1, 2, 3, 4])
    b = write("b", {HEAD: hidden}, token_ids=[1, 2, 3, 4])
    assert diff(a, b).verdict == "inconclusive"


def test_prompt_bytes_are_the_first_rung(write: Callable[..., Path], hidden: np.ndarray) -> None:
    a = write("a", {GDN: hidden}, prompt_hex="616263")
    b = write("b", {GDN: hidden + 1}, prompt_hex="617a63")
    first = diff(a, b).first
    assert first is not None
    assert (first.rung, first.index, first.a, first.b) == ("prompt_bytes", [1], 0x62, 0x7A)


def test_token_ids_come_before_every_array(write: Callable[..., Path], hidden: np.ndarray) -> None:
    a = write("a", {GDN: hidden}, token_ids=[1, 2, 3, 4])
    b = write("b", {GDN: np.concatenate([hidden[:2], hidden[2:] + 1])}, token_ids=[1, 2, 9, 4])
    first = diff(a, b).first
    assert first is not None
    assert (first.rung, first.token, first.a, first.b) == ("token_ids", 2, 3, 9)


def test_a_different_token_is_followed_back_to_the_rung_that_made_it(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    """Token 2 was sampled from the logits of token 1: the logits are the cause, the id is the consequence."""
    a = write("a", {HEAD: hidden}, token_ids=[1, 2, 3, 4])
    b = write("b", {HEAD: changed(hidden, 1, 7, 3.0)}, token_ids=[1, 2, 9, 4])
    first = diff(a, b).first
    assert first is not None
    assert (first.rung, first.token) == ("output_head", 1)
    assert "token ids differ from token 2 on" in first.note


def test_noise_below_the_tolerance_is_within_and_counted(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    a = write("a", {GDN: np.ones((1, 2), np.float32)})
    b = write("b", {GDN: np.array([[1, np.nextafter(np.float32(1), np.float32(2))]], np.float32)})
    result = diff(a, b)
    record = next(one for one in result.rungs if one.rung == "layers.0.gdn")
    assert (result.verdict, record.state, record.max_ulp) == ("equal", "within", 1)
    assert record.max_absolute == 2.0**-23


def test_an_embedding_is_a_copy_and_has_no_tolerance(write: Callable[..., Path]) -> None:
    a = write("a", {EMBEDDING: np.ones((1, 2), np.float32)})
    b = write("b", {EMBEDDING: np.array([[1, np.nextafter(np.float32(1), np.float32(2))]], np.float32)})
    first = diff(a, b).first
    assert first is not None
    assert (first.rung, first.ulp, first.ulp_of) == ("embedding", 1, "f32")


@pytest.mark.parametrize(("rtol", "atol", "verdict"), [(0.0, 0.1, "equal"), (0.0, 0.01, "diverges")])
def test_the_tolerance_of_the_command_line_wins(
    write: Callable[..., Path], rtol: float, atol: float, verdict: str
) -> None:
    zeros = np.zeros((1, 3), np.float32)
    a, b = write("a", {GDN: zeros}), write("b", {GDN: zeros + np.float32(0.05)})
    assert diff(a, b, Options(rtol, atol)).verdict == verdict


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_never_within(write: Callable[..., Path], bad: float) -> None:
    ones = np.ones((2, 2), np.float32)
    broken = ones.copy()
    broken[1, 0] = bad
    a, b = write("a", {GDN: ones}), write("b", {GDN: broken})
    first = diff(a, b, Options(1.0, 1e30)).first
    assert first is not None
    assert (first.token, first.index, first.b) == (1, [0], str(float(bad)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_in_both_is_no_agreement(
    write: Callable[..., Path], hidden: np.ndarray, bad: float, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = hidden.copy()
    broken[2:, 3] = bad
    a = write("a", {READ: hidden, GDN: broken})
    b = write("b", {READ: hidden, GDN: broken})
    result = diff(a, b)
    record = next(one for one in result.rungs if one.rung == "layers.0.gdn")
    assert (result.verdict, result.non_finite, record.state) == (
        "inconclusive",
        ["layers.0.gdn"],
        "non-finite",
    )
    assert record.reason == f"{float(bad)} in both at token 2, index [3]"
    assert main(["diff", str(a), str(b), "--format", "pretty"]) == 3
    assert f"non-finite  layers.0.gdn: {float(bad)} in both" in capsys.readouterr().out


def test_a_state_that_is_not_finite_in_both_is_no_agreement(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    broken = hidden.copy()
    broken[1, 3] = np.nan
    key = ("state", 0, "gdn_conv")
    result = diff(write("a", {GDN: hidden, key: broken}), write("b", {GDN: hidden, key: broken}))
    assert result.non_finite == ["layers.0.state.gdn_conv"]
    assert "index [1, 3]" in result.rungs[-1].reason


def test_a_difference_after_a_value_that_is_not_finite_is_still_found(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    broken = hidden.copy()
    broken[0, 0] = np.nan
    a, b = write("a", {READ: broken, GDN: hidden}), write("b", {READ: broken, GDN: changed(hidden, 1, 0, 1)})
    result = diff(a, b)
    assert (result.verdict, result.last_equal) == ("diverges", None)
    assert "layers.0.attn_gr_prepare" in result.unknown_between


def test_bfloat16_is_compared_with_float32_in_its_own_ulps(write: Callable[..., Path]) -> None:
    """0x3F80 is 1 and 0x3F84 is 1.03125 in bfloat16: four of its steps, beyond the tolerance of two."""
    a = write("a", {GDN: np.array([[0x3F80, 0x3F84]], np.uint16)})
    b = write("b", {GDN: np.array([[1.0, 1.0]], np.float32)})
    first = diff(a, b).first
    assert first is not None
    assert (first.index, first.a, first.ulp, first.ulp_of) == ([1], 1.03125, 4, "bf16")


def test_float16_steps_are_counted(write: Callable[..., Path]) -> None:
    a = write("a", {GDN: np.array([[1.0]], np.float16)})
    b = write("b", {GDN: np.array([[1.0 + 5 * 2.0**-10]], np.float16)})
    first = diff(a, b).first
    assert first is not None
    assert (first.ulp, first.ulp_of) == (5, "f16")


def test_rows_of_another_width_are_a_difference_of_shape(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    first = diff(write("a", {GDN: hidden}), write("b", {GDN: hidden[:, :6].copy()})).first
    assert first is not None
    assert (first.kind, first.a, first.b) == ("shape", "8", "6")


def test_integers_where_floats_should_be_are_a_difference_of_type(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    first = diff(write("a", {GDN: hidden}), write("b", {GDN: hidden.astype(np.int32)})).first
    assert first is not None
    assert (first.kind, first.a, first.b) == ("type", "f32", "i32")


@pytest.mark.parametrize(("third", "judged"), [(0.5, "tie"), (0.50005, "rounding"), (0.9, "disagreement")])
def test_a_swapped_expert_comes_with_the_margin_of_its_choice(
    write: Callable[..., Path], third: float, judged: str
) -> None:
    logits = np.array([[2.0, 0.5, third]], np.float32)
    ids, weights = ("router", 0, "ids"), ("router", 0, "logits")
    a = write("a", {weights: logits, ids: np.array([[0, 1]], np.int64)})
    b = write("b", {weights: logits, ids: np.array([[0, 2]], np.int64)})
    first = diff(a, b).first
    assert first is not None
    assert first.margin is not None
    assert (first.rung, first.index, first.margin.judged) == ("layers.0.router.ids", [1], judged)
    assert first.margin.a == pytest.approx(third - 0.5, abs=1e-7)


def test_a_selection_that_differs_shows_the_gap_at_its_cut(write: Callable[..., Path]) -> None:
    scores = np.array([[3.0, 1.0, 1.25, 0.5]], np.float32)
    chosen = np.zeros((1, 18), np.int32)
    chosen[0, [0, 1, 2, 3, 8, 9, 10, 11, 16, 17]] = 1
    other = np.zeros((1, 18), np.int32)
    other[0, [0, 1, 2, 3, 4, 5, 6, 7, 16, 17]] = 1
    mask, by = ("qsa", 3, "selection_mask"), ("qsa", 3, "index_scores")
    first = diff(write("a", {by: scores, mask: chosen}), write("b", {by: scores, mask: other})).first
    assert first is not None
    assert first.margin is not None
    assert (first.index, first.margin.a, first.margin.judged) == ([4], 0.25, "disagreement")


def test_without_scores_a_cut_is_not_judged(write: Callable[..., Path]) -> None:
    ids = ("router", 0, "ids")
    a = write("a", {ids: np.array([[0, 1]], np.int64)})
    b = write("b", {ids: np.array([[0, 2]], np.int64)})
    first = diff(a, b).first
    assert first is not None
    assert first.margin is not None
    assert first.margin.judged == "unknown"


def test_chunks_of_one_capture_meet_the_whole_of_another(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    whole = write("a", {GDN: hidden})
    parts = write("b", {GDN: hidden[:1].copy(), ("gdn", 0, "x"): hidden[1:].copy()})
    document = json.loads((parts / "capture.json").read_text())
    document["entries"][1] |= {"part": "", "first_token": 1}
    (parts / "capture.json").write_text(json.dumps(document))
    record = next(one for one in diff(whole, parts).rungs if one.rung == "layers.0.gdn")
    assert (record.state, record.tokens) == ("equal", 4)


def test_tokens_that_only_one_capture_has_are_not_compared(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    a = write("a", {GDN: hidden})
    b = write("b", {GDN: hidden[2:].copy()}, first=2)
    result = diff(a, b)
    record = next(one for one in result.rungs if one.rung == "layers.0.gdn")
    assert (record.state, record.tokens, record.total, record.compared) == ("equal", 2, 4, ((2, 4),))
    assert result.partial == ["layers.0.gdn"]


def part_of(write: Callable[..., Path], name: str, arrays: dict, key: tuple, first: int, end: int) -> Path:
    """Writes a capture in which one rung has the tokens [first, end) only."""
    folder = write(name, {**arrays, key: arrays[key][first:end].copy()})
    document = json.loads((folder / "capture.json").read_text())
    for entry in document["entries"]:
        if (entry["stage"], entry.get("layer"), entry.get("part", "")) == key:
            entry["first_token"] = first
    (folder / "capture.json").write_text(json.dumps(document))
    return folder


def test_a_rung_cut_short_is_said_and_is_not_complete(
    write: Callable[..., Path], full: dict, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = write("a", full, prompt_hex="61", token_ids=[1, 2, 3, 4]), part_of(write, "b", full, GDN, 0, 3)
    document = json.loads((b / "capture.json").read_text()) | {"prompt_hex": "61", "token_ids": [1, 2, 3, 4]}
    (b / "capture.json").write_text(json.dumps(document))
    assert main(["diff", str(a), str(a), "--complete", "--format", "pretty"]) == 0
    assert "in part" not in capsys.readouterr().out
    assert main(["diff", str(a), str(b), "--format", "pretty"]) == 0
    assert "in part     3 of 4 tokens compared: layers.0.gdn\n" in capsys.readouterr().out
    assert main(["diff", str(a), str(b), "--complete", "--format", "pretty"]) == 3
    assert capsys.readouterr().out.startswith("inconclusive: ")


def test_token_ids_cut_short_are_compared_in_part(write: Callable[..., Path], full: dict) -> None:
    a = write("a", full, prompt_hex="61", token_ids=[1, 2, 3, 4])
    short = {key: array[:2].copy() for key, array in full.items()}
    b = write("b", short, prompt_hex="61", token_ids=[1, 2])
    result = diff(a, b)
    record = next(one for one in result.rungs if one.rung == "token_ids")
    assert (record.tokens, record.total) == (2, 4)
    assert "token_ids" in result.partial
    assert "output_head" in result.partial
    assert main(["diff", str(a), str(b), "--complete", "--format", "json"]) == 3


def test_a_rung_not_compared_at_the_differing_token_is_unknown_between(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    """The difference at token 1 may come from GDN, which only one capture has there."""
    a = write("a", {READ: hidden, GDN: hidden, APPLY: hidden})
    b = part_of(write, "b", {READ: hidden, GDN: hidden, APPLY: changed(hidden, 1, 0, 1)}, GDN, 2, 4)
    result = diff(a, b)
    assert result.last_equal == "layers.0.attn_gr_prepare"
    assert result.unknown_between == ["layers.0.gdn"]


def test_a_rung_compared_at_the_differing_token_bounds_a_stage_of_single_tokens(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    a = write("a", {READ: hidden, GDN: hidden, APPLY: hidden})
    b = part_of(write, "b", {READ: hidden, GDN: hidden, APPLY: changed(hidden, 3, 0, 1)}, GDN, 2, 4)
    result = diff(a, b)
    assert (result.last_equal, result.unknown_between) == ("layers.0.gdn", [])


def test_before_a_recurrent_stage_all_earlier_tokens_count(
    write: Callable[..., Path], hidden: np.ndarray
) -> None:
    """GDN differs at token 3; its input agrees there, but was not compared at tokens 0 and 1."""
    a = write("a", {EMBEDDING: hidden, READ: hidden, GDN: hidden})
    b = part_of(write, "b", {EMBEDDING: hidden, READ: hidden, GDN: changed(hidden, 3, 0, 1)}, READ, 2, 4)
    result = diff(a, b)
    assert result.last_equal == "embedding"
    assert result.unknown_between == ["four_stream_residual", "layers.0.attn_gr_prepare"]


def test_a_rung_in_neither_capture_is_unknown(write: Callable[..., Path], full: dict) -> None:
    arrays = {key: array for key, array in full.items() if key != APPLY}
    a = write("a", arrays, prompt_hex="61", token_ids=[1, 2, 3, 4])
    record = next(one for one in diff(a, a).rungs if one.rung == "layers.0.attn_gr_apply")
    assert (record.state, record.reason) == ("unknown", "in neither capture")
    assert main(["diff", str(a), str(a), "--complete", "--format", "json"]) == 3


def test_states_of_another_layout_are_unknown(write: Callable[..., Path], hidden: np.ndarray) -> None:
    key = ("state", 0, "gdn_conv")
    result = diff(
        write("a", {GDN: hidden, key: hidden}), write("b", {GDN: hidden, key: hidden[:, :6].copy()})
    )
    assert result.rungs[-1].state == "unknown"
    assert result.verdict == "equal"


def test_big_arrays_are_compared_in_bounded_memory(write: Callable[..., Path], tmp_path: Path) -> None:
    """64 MiB on each side; the last value differs, so that everything before it must be read."""
    big = np.zeros((256, 1 << 16), np.float32)
    a = write("a", {GDN: big})
    big[-1, -1] = 1
    b = write("b", {GDN: big})
    del big
    tracemalloc.start()
    first = diff(a, b).first
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert first is not None
    assert (first.token, first.index) == (255, [65535])
    assert peak < 100 << 20  # two blocks of 4 MiB and their float64 temporaries


def test_the_ladder_orders_every_pair_of_shipped_rungs() -> None:
    """The order of the real run: a rung never comes before one that feeds it."""
    rungs = OpenCapture(fixture_path("captures", "small", "one-shot")).rungs()
    names = [(stage, layer, part) for stage, layer, part in rungs]
    expected = ["ple_rows", "embedding", "four_stream_residual", "attn_gr_prepare", "gdn", "attn_gr_apply"]
    assert list(dict.fromkeys(stage for stage, _, _ in names))[:6] == expected
    layered = [layer for stage, layer, _ in names if layer is not None and stage not in {"state", "ple_rows"}]
    assert all(x <= y for x, y in itertools.pairwise(layered))
    last = [stage for stage, _, _ in names if stage in {"final_gr_mixer", "output_head", "sampled_id"}]
    assert list(dict.fromkeys(last)) == ["final_gr_mixer", "output_head", "sampled_id"]
    assert (
        names.index(("qsa", 3, "index_scores"))
        < names.index(("qsa", 3, "selected"))
        < names.index(("qsa", 3, ""))
    )


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("small/one-shot", "small/chunks"),
        ("small/one-shot", "small/token-by-token"),
        ("small/batch-short-row", "small/short-row-alone"),
        ("small/padded-decode", "small/short-row-alone"),
        ("small/batch-long-row", "small/end-of-text-inside"),
        ("two-ple/one-shot", "two-ple/chunks"),
        ("contract-fixture/tokens", "contract-fixture/token-by-token"),
        ("miniature/long", "miniature/prefill-decode"),
    ],
)
def test_upstream_agrees_with_itself_over_partitions_and_padding(a: str, b: str) -> None:
    result = diff(fixture_path("captures", a), fixture_path("captures", b))
    assert (result.verdict, result.first) == ("equal", None)


def test_a_batch_axis_is_refused_in_one_line(
    write: Callable[..., Path], hidden: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write("a", {GDN: hidden})
    document = json.loads((a / "capture.json").read_text())
    document["entries"][0]["shape"] = [1, 4, 8]
    (a / "capture.json").write_text(json.dumps(document))
    assert main(["diff", str(a), str(a)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("assay: error: capture.entry.shape: A layers.0.gdn [0, 4): expected first axis 4")


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--rtol", "-1"], 2), (["--atol", "nan"], 2), ([], 0), (["--complete"], 3)]
)
def test_exit_codes(write: Callable[..., Path], hidden: np.ndarray, arguments: list[str], code: int) -> None:
    a, b = write("a", {GDN: hidden, HEAD: hidden}), write("b", {GDN: hidden})
    assert main(["diff", str(a), str(b), *arguments, "--format", "json"]) == code


def test_the_json_output_follows_its_schema(
    write: Callable[..., Path], hidden: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = write("a", {GDN: hidden}), write("b", {GDN: hidden + 1})
    assert main(["diff", str(a), str(b), "--format", "json"]) == 1
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert value["schema"] == "assay.diff/1"
    assert Diff.model_validate_json(json.dumps(value)).first is not None


def test_a_file_that_is_cut_short_is_refused(write: Callable[..., Path], hidden: np.ndarray) -> None:
    a = write("a", {GDN: hidden})
    (a / "0.bin").write_bytes((a / "0.bin").read_bytes()[:-1])
    with pytest.raises(AdmissionError) as caught:
        OpenCapture(a)
    assert caught.value.finding.code == "capture.file.extent"
    assert caught.value.finding.where == "layers.0.gdn [0, 4)"


def test_a_stated_digest_is_compared_before_anything_is_called_equal(
    write: Callable[..., Path], hidden: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = write("a", {GDN: hidden}), write("b", {GDN: hidden})
    document = json.loads((b / "capture.json").read_text())
    document["entries"][0]["sha256"] = hashlib.sha256((b / "0.bin").read_bytes()).hexdigest()
    (b / "capture.json").write_text(json.dumps(document))
    assert main(["diff", str(a), str(b)]) == 0
    for folder in (a, b):  # the same damage on both sides would be equal
        (folder / "0.bin").write_bytes(bytes(hidden.nbytes))
    capsys.readouterr()
    assert main(["diff", str(a), str(b)]) == 1
    assert "capture.file.digest: B layers.0.gdn [0, 4)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("edit", "where", "expected"),
    [
        (lambda document: document.pop("producer"), "producer", "this field"),
        (lambda document: document.update(more=1), "more", "no such field"),
        (lambda document: document["entries"][0].update(tokens=True), "entries.0.tokens", "a valid integer"),
    ],
)
def test_a_fault_of_form_says_in_whose_capture_and_what_was_expected(
    write: Callable[..., Path],
    hidden: np.ndarray,
    capsys: pytest.CaptureFixture[str],
    edit: Callable[[dict[str, Any]], Any],
    where: str,
    expected: str,
) -> None:
    a, b = write("a", {GDN: hidden}), write("b", {GDN: hidden})
    document = json.loads((b / "capture.json").read_text())
    edit(document)
    (b / "capture.json").write_text(json.dumps(document))
    assert main(["diff", str(a), str(b)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"assay: error: capture.form: B {where}: expected {expected}, got ")
    assert lines[1] == f"hint: `assay validate {b}` lists every fault of B"
