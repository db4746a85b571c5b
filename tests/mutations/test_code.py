"""Battery `code`: what is in scope, how fates are counted, and that it says when it can't look."""

import json
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.mutations import code
from assay.mutations.code_reasons import KINDS, TEXT, kind_of
from assay.provenance.commands import mutate


def kind(before: str, after: str) -> str:
    """The kind's name for one changed line of a function."""
    function = "def x_f__mutmut_{}(x, kind, rows):\n    {}\n"
    found = kind_of(function.format("orig", before), function.format("1", after))
    return "" if found is None else found.name


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("raise refuse(A, 'x', expected='one', got=x)", "raise refuse(A, 'x', expected='XXoneXX', got=x)", "text"),
        ("raise refuse(A, 'x', expected='one', got=x)", "raise refuse(A, 'x', expected='one', got=None)", "text"),
        ("got = len(x)", "got = None", "text"),
        ("raise refuse(A, 'x', expected='one', got=x)", "raise refuse(A, 'XXxXX', expected='one', got=x)", ""),
        ("raise refuse(A, 'x', expected='one', got=x)", "raise refuse(None, 'x', expected='one', got=x)", ""),
        ("return x.astype(np.float64)", "return x.astype(None)", "default-type"),
        ("return x.astype(np.float32)", "return x.astype(None)", ""),
        ("return np.array(x, np.int64)", "return np.array(x, )", "default-type"),
        ("return np.array(x, np.int32)", "return np.array(x, )", ""),
        ("return real('x', x, kind, (2,))", "return real('x', x, None, (2,))", "later-rounding"),
        ("return real('x', x, kind, (2,))", "return real('x', x, kind, None)", ""),
        ("return real('x', x, kind, (2,))", "return real(None, x, kind, (2,))", ""),
        ("return f(x, kind)", "return f(None, kind)", ""),
        ("return x.encode('utf-8')", "return x.encode('UTF-8')", "spelling"),
        ("return zip(x, rows, strict=True)", "return zip(x, rows)", "strict-zip"),
        ("return x + rows", "return x - rows", ""),
        ("return np.maximum(x, 0)", "return np.maximum(x, 1)", ""),
    ],
)  # fmt: skip
def test_only_what_a_reason_covers_is_excused(before: str, after: str, name: str) -> None:
    assert kind(before, after) == name


def test_every_kind_has_a_reason() -> None:
    assert all(one.reason for one in (TEXT, *KINDS))


def mutant(
    name: str, exit_code: int | None, before: str = "return x + 1", after: str = "return x - 1"
) -> code.Mutant:
    function = "def x_f__mutmut_{}(x):\n    {}\n"
    return code.Mutant(
        name, "norms", "f", function.format("orig", before), function.format("1", after), exit_code
    )


def test_fates_are_counted_once_and_a_survivor_is_shown_with_its_diff() -> None:
    fates = [
        mutant("a", 1), mutant("b", -24), mutant("c", 0), mutant("d", 33), mutant("e", -11), mutant("f", None),
        mutant("g", 0, "return x.astype(np.float64)", "return x.astype(None)"),
    ]  # fmt: skip
    run = code.summary(fates, generated=20, left=3, sample=7, seed=5)
    counts = run.batteries["code"]
    assert (counts.total, counts.killed, counts.survived, counts.equivalent, counts.invalid) == (
        7,
        2,
        2,
        1,
        2,
    )
    assert [one.id for one in run.survivors] == ["c", "d", "e", "f"]
    assert run.survivors[0].change == "-    return x + 1\n+    return x - 1"
    assert run.details["code"].excused[0].mutations == ["g"]
    assert run.details["code"].not_run[0] == "7 drawn with seed 5 out of 17: the rest"


def test_a_reason_for_one_mutant_is_filed_under_its_diff(monkeypatch: pytest.MonkeyPatch) -> None:
    one = mutant("a", 0)
    other = mutant("b", 0, after="return x * 1")
    monkeypatch.setitem(code.SINGLE, one.key, "a reason")
    counts = code.summary([one, other], 2, 0, None, 0).batteries["code"]
    assert (counts.equivalent, counts.survived) == (1, 1)
    assert one.key.startswith("norms.f:")


def test_a_killed_mutant_needs_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    one = mutant("a", 1)
    monkeypatch.setitem(code.SINGLE, one.key, "a reason")
    assert code.summary([one], 1, 0, None, 0).batteries["code"].equivalent == 0


def test_mutants_are_read_as_they_stand_on_disk(tmp_path: Path) -> None:
    folder = tmp_path / "mutants" / "src" / "assay" / "oracles"
    folder.mkdir(parents=True)
    (folder / "norms.py").write_text(
        "def xǁAǁf__mutmut_orig():\n    return 1\ndef xǁAǁf__mutmut_1():\n    return 2\n"
    )
    (folder / "norms.py.meta").write_text(
        json.dumps({"exit_code_by_key": {"assay.oracles.norms.xǁAǁf__mutmut_1": 0}})
    )
    spans = {"version": 1, "spans": {"xǁAǁf__mutmut_orig": [1, 2], "xǁAǁf__mutmut_1": [3, 4]}}
    (folder / "norms.py.spans").write_text(json.dumps(spans))
    (one,) = code.mutants(tmp_path)
    assert (one.module, one.function, one.exit_code, one.diff) == (
        "norms",
        "A.f",
        0,
        "-    return 1\n+    return 2",
    )


@pytest.fixture
def checkout() -> Path:
    found = code.checkout()
    if found is None:
        pytest.skip("not-run: an installed package has no checkout")
    return found


def test_a_stage_is_laid_out_as_the_wheel_and_stays_until_the_source_changes(
    tmp_path: Path, checkout: Path
) -> None:
    code.stage(checkout, tmp_path / "stage")
    package = tmp_path / "stage" / "src" / "assay"
    assert (package / "oracles" / "norms.py").read_bytes() == (checkout / "oracles" / "norms.py").read_bytes()
    assert (package / "__init__.py").is_file()
    assert (tmp_path / "stage" / "tests" / "oracles" / "test_norms.py").is_file()
    mark = tmp_path / "stage" / "mark"
    mark.write_text("kept")
    code.stage(checkout, tmp_path / "stage")
    assert mark.is_file()
    (tmp_path / "stage" / "source.sha256").write_text("another")
    code.stage(checkout, tmp_path / "stage")
    assert not mark.is_file()


def test_a_stage_is_laid_out_without_the_packages_that_run_it(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", absent)
    code.stage(checkout, tmp_path / "stage")
    assert (tmp_path / "stage" / "source.sha256").is_file()


def run(*arguments: str) -> int:
    import argparse

    parser = argparse.ArgumentParser()
    mutate.configure(parser)
    return mutate.run(parser.parse_args(arguments, SimpleNamespace(quiet=True, format="json", out=None)))


def test_without_a_checkout_it_is_not_run_with_its_reason(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(code, "checkout", lambda: None)
    assert run("code", "--sample", "3") == 3
    printed = json.loads(capsys.readouterr().out)
    assert printed["batteries"]["code"]["total"] == 0
    assert printed["details"]["code"]["not_run"] == [
        "needs a checkout: the tests are not part of the package"
    ]


@pytest.mark.parametrize("arguments", [("fixtures", "--sample", "3"), ("code", "--sample", "0")])
def test_a_sample_belongs_to_the_battery_of_code(arguments: tuple[str, ...]) -> None:
    from assay.spec.errors import UsageError

    with pytest.raises(UsageError) as caught:
        run(*arguments)
    assert caught.value.finding.where == "--sample"


def test_a_function_that_is_left_out_is_there() -> None:
    """A reason for a function that was renamed would excuse nothing, or the wrong thing."""
    import importlib

    from assay.mutations.code_reasons import FUNCTIONS

    for place, reason in FUNCTIONS.items():
        module, name = place.split(".")
        assert callable(getattr(importlib.import_module(f"assay.oracles.{module}"), name))
        assert reason


def test_the_draw_depends_on_the_change_and_the_seed_and_not_on_the_neighbours() -> None:
    one, same = mutant("assay.norms.x_f__mutmut_1", 0), mutant("assay.norms.x_f__mutmut_9", 0)
    other = mutant("assay.norms.x_f__mutmut_1", 0, after="return x * 1")
    assert code._lot(3, one) == code._lot(3, same)
    assert len({code._lot(3, one), code._lot(4, one), code._lot(3, other)}) == 3


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ([1, 1, -24], ""),
        ([1, -24], "no verdict: 1 mutants failed a test, 1 ran out of time"),
        ([-24, 24, 152], "no verdict: 0 mutants failed a test, 3 ran out of time"),
        ([0], "no verdict: 0 mutants failed a test, 0 ran out of time"),
    ],
)
def test_kills_by_the_clock_alone_are_no_verdict(codes: list[int], said: str) -> None:
    fates = [mutant(str(place), one) for place, one in enumerate(codes)]
    assert code.no_verdict(code.summary(fates, len(codes), 0, None, 0)) == said


def test_a_run_without_a_verdict_is_inconclusive_although_nothing_survived(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def timed_out(*_: object, **__: object) -> object:
        return code.summary([mutant("a", -24), mutant("b", -24)], 2, 0, None, 0)

    monkeypatch.setattr(code, "unavailable", lambda: "")
    monkeypatch.setattr(code, "run_code", timed_out)
    assert run("code") == 3
    printed = json.loads(capsys.readouterr().out)
    assert (printed["batteries"]["code"]["killed"], printed["details"]["code"]["timed_out"]) == (2, 2)


def test_a_survivor_is_exit_1_whatever_the_clock_did(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(code, "unavailable", lambda: "")
    fates = [mutant("a", -24), mutant("b", 0)]
    monkeypatch.setattr(code, "run_code", lambda *_, **__: code.summary(fates, 2, 0, None, 0))
    assert run("code") == 1
    assert json.loads(capsys.readouterr().out)["survivors"][0]["id"] == "b"
