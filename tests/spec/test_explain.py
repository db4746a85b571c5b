"""Every clause of the package says what it means, where it comes from and why it fails, and can be asked for."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from assay.provenance.catalogue import CLAUSE_MODULES, load_all_clauses
from assay.provenance.cli import main
from assay.spec.clauses import clauses

ROOT = Path(__file__).resolve().parent.parent.parent
ROOMS = ("spec", "oracles", "impl", "mutations", "provenance", "reports")

load_all_clauses()
ALL = list(clauses())


def test_every_clause_has_meaning_source_and_cause_in_whole_sentences() -> None:
    lacking = [
        one.id
        for one in ALL
        if not (one.meaning.strip().endswith(".") and one.source.strip() and one.cause.strip())
    ]
    assert lacking == []


def test_every_clause_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for one in ALL:
        assert main(["explain", one.id, "--format", "json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["id"], told["meaning"], told["cause"]) == (one.id, one.meaning, one.cause)


def test_an_unknown_clause_is_a_usage_error_with_the_nearest_ids(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "ple.hash.multiplyers"]) == 2
    said = capsys.readouterr().err
    assert "usage.argument: explain: expected a clause id" in said
    assert "ple.hash.multipliers" in said


def test_a_prefix_lists_the_clauses_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "ple.hash", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "ple.hash.primes" in {one["id"] for one in told}
    assert all(one["id"].startswith("ple.hash.") for one in told)


def test_every_module_that_declares_a_clause_is_in_the_catalogue() -> None:
    declaring = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            calls = [
                node
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Call)
            ]
            if any(isinstance(call.func, ast.Name) and call.func.id == "declare" for call in calls):
                declaring.add(".".join(("assay", *path.relative_to(ROOT).with_suffix("").parts)))
    assert declaring - set(CLAUSE_MODULES) == set()


def test_no_module_declares_a_clause_through_a_helper_behind_the_catalogues_back() -> None:
    code = (
        "import importlib, pkgutil\n"
        "from assay.provenance.catalogue import load_all_clauses\n"
        "from assay.spec.clauses import clauses\n"
        "load_all_clauses()\n"
        "known = {one.id for one in clauses()}\n"
        "for room in ('spec', 'impl.stores', 'mutations'):\n"
        "    package = importlib.import_module(f'assay.{room}')\n"
        "    for module in pkgutil.walk_packages(package.__path__, f'assay.{room}.'):\n"
        "        importlib.import_module(module.name)\n"
        "print(sorted({one.id for one in clauses()} - known))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
