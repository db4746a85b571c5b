"""A document may claim less than its evidence, and nothing more."""

import pytest

from assay.provenance.evidence.claims import check_claims, overclaims
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
