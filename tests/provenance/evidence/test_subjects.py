"""What makes evidence stale: a changed helper however far away, and no comment."""

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.provenance.components import Component
from assay.provenance.evidence.subjects import SourceTree, bench
from assay.spec.errors import EvidenceError

FILES = {
    "__init__.py": '"""Root."""\n__version__ = "1"\n',
    "spec/__init__.py": "",
    "spec/helper.py": '"""Helper."""\n\nLIMIT = 3\n"""What it means."""\n\n\ndef double(x):\n    """Doubles."""\n    return 2 * x\n',
    "spec/unrelated.py": "VALUE = 1\n",
    "impl/__init__.py": "",
    "impl/middle.py": "from assay.spec import helper\n\n\ndef middle(x):\n    return helper.double(x)\n",
    "impl/top.py": "def top(x):\n    from assay.impl.middle import middle\n\n    return middle(x)\n",
    "impl/parts/__init__.py": "",
    "impl/parts/one.py": "from ..middle import middle\n",
    "impl/parts/two.py": "import importlib\n\nlate = importlib.import_module('assay.spec.unrelated')\n",
    "fixtures/a/x.bin": "bytes",
    "spec/profiles/p.json": "{}",
    "spec/profiles/__init__.py": '"""Profiles."""\n\nNAMES = ("p",)\n',
}
TOP = Component("top", "Top", "Claims.", ("assay.impl.top",), ("fixtures/a",), ("spec/profiles",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def edit(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text()
    after = change(before)
    assert after != before
    path.write_text(after)


def test_the_closure_follows_imports_inside_functions_and_the_packages_above(root: Path) -> None:
    assert SourceTree(root).closure(["assay.impl.top"]) == {
        "assay", "assay.impl", "assay.impl.top", "assay.impl.middle", "assay.spec", "assay.spec.helper",
    }  # fmt: skip


def test_a_package_stands_for_everything_below_it(root: Path) -> None:
    closure = SourceTree(root).closure(["assay.impl.parts"])
    assert {"assay.impl.parts.one", "assay.impl.parts.two"} <= closure


def test_relative_imports_and_literal_late_imports_are_followed(root: Path) -> None:
    closure = SourceTree(root).closure(["assay.impl.parts"])
    assert {"assay.impl.middle", "assay.spec.unrelated"} <= closure


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("impl/top.py", lambda text: f"# a comment\n{text}"),
        ("impl/top.py", lambda text: text.replace("(x)", "( x )")),
        ("spec/helper.py", lambda text: text.replace("Doubles.", "Returns twice the value.")),
        ("spec/helper.py", lambda text: text.replace('"""Helper."""\n', "")),
        ("spec/helper.py", lambda text: text.replace("What it means", "Something else")),
        ("spec/helper.py", lambda text: text.replace("    return", "\n\n    # why\n    return")),
        ("spec/unrelated.py", lambda text: text.replace("1", "2")),
        ("impl/parts/one.py", lambda text: text + "CHANGED = 1\n"),
    ],
)
def test_comments_docstrings_layout_and_unrelated_modules_change_nothing(
    root: Path, name: str, change: Callable[[str], str]
) -> None:
    before = SourceTree(root).subject(TOP)
    edit(root / name, change)
    assert SourceTree(root).subject(TOP) == before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("spec/helper.py", "2 * x", "3 * x"),
        ("spec/helper.py", "LIMIT = 3", "LIMIT = 3.0"),
        ("impl/middle.py", "middle(x)", "middle(x, y=0)"),
        ("impl/top.py", "return middle", "return +middle"),
        ("impl/__init__.py", "", "import os\n"),
        ("__init__.py", '"1"', '"2"'),
    ],
)
def test_a_change_two_imports_away_changes_the_code(root: Path, name: str, old: str, new: str) -> None:
    tree = SourceTree(root)
    before = tree.subject(TOP)
    edit(root / name, lambda text: text.replace(old, new, 1))
    after = tree.subject(TOP)
    assert after.code != before.code
    assert (after.contract, after.fixtures) == (before.contract, before.fixtures)


def test_changed_fixture_bytes_change_only_the_fixtures(root: Path) -> None:
    tree = SourceTree(root)
    before = tree.subject(TOP)
    edit(root / "fixtures/a/x.bin", lambda text: text + "!")
    after = tree.subject(TOP)
    assert after.fixtures != before.fixtures
    assert (after.code, after.contract) == (before.code, before.contract)


def test_a_renamed_or_added_fixture_changes_the_fixtures(root: Path) -> None:
    before = SourceTree(root).subject(TOP).fixtures
    (root / "fixtures/a/x.bin").rename(root / "fixtures/a/y.bin")
    renamed = SourceTree(root).subject(TOP).fixtures
    (root / "fixtures/a/z.bin").write_bytes(b"")
    assert len({before, renamed, SourceTree(root).subject(TOP).fixtures}) == 3


def test_changed_contract_bytes_change_only_the_contract(root: Path) -> None:
    before = SourceTree(root).subject(TOP)
    edit(root / "spec/profiles/p.json", lambda text: text + " ")
    after = SourceTree(root).subject(TOP)
    assert after.contract != before.contract
    assert (after.code, after.fixtures) == (before.code, before.fixtures)


@pytest.mark.parametrize("name", ["assay.impl.gone", "assay.gone", "numpy"])
def test_a_component_that_names_a_missing_module_is_an_error(root: Path, name: str) -> None:
    with pytest.raises(EvidenceError) as caught:
        SourceTree(root).code_digest([name])
    assert (caught.value.finding.code, caught.value.finding.where) == ("evidence.subject.missing", name)


def test_a_component_that_names_missing_data_is_an_error(root: Path) -> None:
    with pytest.raises(EvidenceError) as caught:
        SourceTree(root).data_digest(["fixtures/gone"])
    assert (caught.value.finding.code, caught.value.finding.where) == (
        "evidence.subject.missing",
        "fixtures/gone",
    )


def test_a_module_that_does_not_parse_is_an_error_that_names_it(root: Path) -> None:
    (root / "spec/helper.py").write_text("def (:\n")
    with pytest.raises(EvidenceError) as caught:
        SourceTree(root).subject(TOP)
    assert (caught.value.finding.code, caught.value.finding.where) == (
        "evidence.subject.syntax",
        "assay.spec.helper",
    )


def test_the_bench_names_absent_packages() -> None:
    assert bench(["no-such-distribution"]).packages == {"no-such-distribution": "absent"}


def test_a_comment_in_python_source_of_the_contract_changes_nothing_and_a_value_does(root: Path) -> None:
    path = root / "spec/profiles/__init__.py"
    before = SourceTree(root).subject(TOP)
    edit(path, lambda text: text.replace("Profiles.", "All profiles.") + "# a comment\n")
    assert SourceTree(root).subject(TOP) == before
    edit(path, lambda text: text.replace('"p"', '"q"'))
    assert SourceTree(root).subject(TOP).contract != before.contract
