"""A document may claim less than its evidence, and nothing more."""

import pytest

from assay.provenance.evidence.claims import BEGIN, END, check_claims, overclaims
from assay.spec.errors import ContractError
from assay.spec.verdicts import Label

LABELS = {"contract": Label.IMPLEMENTED, "reader": Label.HYPOTHESIS}


def document(*rows: str) -> str:
    table = "\n".join(["| component | label | meaning |", "|---|:--|---|", *rows])
    return f"# Title\n\n| component | label |\n|---|---|\n| other | supported |\n\n<!-- status:begin -->\n{table}\n<!-- status:end -->\n"


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        ("| contract | implemented | x |", "holds"),
        ("| `contract` | **implemented** | x |", "holds"),
        ("| contract | structural-only | x |", "modest"),
        ("| contract | correctness-fixture | x |", "overclaimed"),
        ("| contract | supported | x |", "overclaimed"),
        ("| reader | hypothesis | x |", "holds"),
        ("| reader | structural-only | x |", "overclaimed"),
        ("| unknown | hypothesis | x |", "overclaimed"),
        ("| contract | works | x |", "overclaimed"),
    ],
)
def test_a_claim_is_compared_with_the_computed_label(row: str, verdict: str) -> None:
    assert [one.verdict for one in check_claims(document(row), LABELS)] == [verdict]


def test_every_overclaim_is_a_finding_at_its_component() -> None:
    rows = ("| contract | qualified | x |", "| reader | hypothesis | x |", "| ghost | implemented | x |")
    found = overclaims(check_claims(document(*rows), LABELS))
    assert [(one.code, one.where, one.got) for one in found] == [
        ("claims.overclaimed", "contract", "qualified"),
        ("claims.overclaimed", "ghost", "implemented"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "<!-- status:begin -->\n| a | b |\n|---|---|\n| contract | implemented |\n",
        "<!-- status:end -->\n<!-- status:begin -->\n",
        document() + document(),
        document(),
    ],
)
def test_a_document_without_one_table_between_the_markers_is_refused(text: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_claims(text, LABELS)
    assert (caught.value.finding.code, caught.value.finding.where) == ("claims.markers", "document")


TWO_COLUMNS = f"""
{BEGIN}
| component | embedded | with the checkpoint |
|---|---|---|
| contract | structural-only | qualified |
{END}
"""


@pytest.mark.parametrize(
    ("column", "verdict"),
    [(None, "modest"), ("embedded", "modest"), ("with the checkpoint", "overclaimed")],
)
def test_the_column_that_was_asked_for_is_compared(column: str | None, verdict: str) -> None:
    records = check_claims(TWO_COLUMNS, {"contract": Label.IMPLEMENTED}, column)
    assert [(one.component, one.verdict) for one in records] == [("contract", verdict)]


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(ContractError) as caught:
        check_claims(TWO_COLUMNS, {}, "elsewhere")
    assert (caught.value.finding.code, caught.value.finding.expected) == (
        "claims.markers",
        "a column elsewhere",
    )
