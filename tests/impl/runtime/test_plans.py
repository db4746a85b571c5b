"""Requests name the right bytes: read plainly, they give what the stores give."""

import pytest
from runtime_toys import Stores

from assay.impl.runtime.plans import Asker, expert_request, row_bytes, row_requests
from assay.impl.runtime.reading import PlainReader
from assay.impl.runtime.tickets import ExpertRecord, Phase, Piece, Priority, ReadRequest, RowPages, State
from assay.mutations import store_samples as samples
from assay.spec.errors import AdmissionError, ContractError

ASKER = Asker("lane 0", 0, Phase.DECODE, 1)


def test_a_record_arrives_whole_and_verified(stores: Stores) -> None:
    reader = PlainReader(stores.files)
    (ticket,) = reader.submit([expert_request(stores.experts, ASKER, 2)])
    assert reader.wait(ticket) == stores.experts.read_record(1, 2).data


def test_gate_and_up_are_one_piece_and_down_another(stores: Stores) -> None:
    request = expert_request(stores.experts, ASKER, 3)
    layer = stores.experts.layer(1)
    assert [[piece.size for piece in part] for part in request.parts] == [
        [sum(one.expert_bytes for one in layer.components[:2])],
        [layer.components[2].expert_bytes],
    ]


def test_the_first_part_is_gate_and_up(stores: Stores) -> None:
    reader = PlainReader(stores.files)
    (ticket,) = reader.submit([expert_request(stores.experts, ASKER, 0)])
    record = stores.experts.read_record(1, 0)
    assert bytes(reader.wait(ticket, 0)) == bytes(record.component(0)) + bytes(record.component(1))


def test_down_alone_can_be_asked_for_and_has_no_digest(stores: Stores) -> None:
    request = expert_request(stores.experts, ASKER, 0, parts=((2,),))
    reader = PlainReader(stores.files)
    (ticket,) = reader.submit([request])
    assert request.sha256 is None
    assert reader.wait(ticket) == stores.experts.read_record(1, 0).component(2)


def test_rows_come_out_of_their_pages(stores: Stores) -> None:
    rows = [99, 0, 17, 16, 8]
    reader = PlainReader(stores.files)
    requests = row_requests(stores.rows, ASKER, rows, slot_bytes=1 << 20)
    (ticket,) = reader.submit(requests)
    data = reader.wait(ticket)
    got = [bytes(row_bytes(stores.rows, row, requests[0], data)) for row in rows]
    assert got == [samples.golden_rows(row, 1) for row in rows]


def test_each_page_is_asked_for_once_in_ascending_order(stores: Stores) -> None:
    (request,) = row_requests(stores.rows, ASKER, [9, 0, 15, 8], slot_bytes=1 << 20)
    assert request.target == RowPages((0, 1))


def test_pages_are_split_by_the_size_of_a_slot(stores: Stores) -> None:
    requests = row_requests(stores.rows, ASKER, range(100), slot_bytes=3 * 4096 + 4095)
    assert [len(one.parts[0]) for one in requests] == [3, 3, 3, 3, 1]


def test_a_changed_page_is_named(stores: Stores) -> None:
    (request,) = row_requests(stores.rows, ASKER, [0], slot_bytes=4096)
    piece = request.parts[0][0]
    reader = PlainReader(stores.files)
    wrong = ReadRequest(
        request.store, "a", 0, Phase.DECODE, 0, 1, request.target,
        ((Piece(piece.offset, piece.size, bytes(32)),),), is_exact=True, confidence=1.0, priority=Priority.EXACT,
    )  # fmt: skip
    (ticket,) = reader.submit([wrong])
    with pytest.raises(AdmissionError) as caught:
        reader.wait(ticket)
    assert (caught.value.finding.code, caught.value.finding.where) == ("runtime.read.digest", "pages 0")


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"parts": ()}, "layer 0 expert 1: parts"),
        ({"parts": ((Piece(0, 1),), ())}, "layer 0 expert 1: parts"),
        ({"parts": ((Piece(0, 0),),)}, "layer 0 expert 1: parts"),
        ({"is_exact": False}, "layer 0 expert 1: priority"),
        ({"owner": ""}, "layer 0 expert 1: owner"),
        ({"owner": "a" * 65}, "layer 0 expert 1: owner"),
        ({"owner": "a\nb"}, "layer 0 expert 1: owner"),
        ({"generation": -1}, "layer 0 expert 1: generation"),
        ({"layer": -1}, "layer 0 expert 1: layer"),
        ({"tokens": -1}, "layer 0 expert 1: tokens"),
        ({"priority": Priority.NEAR}, "layer 0 expert 1: priority"),
        ({"confidence": 1.5}, "layer 0 expert 1: confidence"),
        ({"confidence": float("nan")}, "layer 0 expert 1: confidence"),
    ],
)
def test_a_request_that_cannot_be_scheduled_is_refused(changes: dict[str, object], where: str) -> None:
    fields: dict[str, object] = {
        "store": "s", "owner": "a", "generation": 0, "phase": Phase.DECODE, "layer": 0, "tokens": 1,
        "target": ExpertRecord(0, 1), "parts": ((Piece(0, 1),),), "is_exact": True, "confidence": 1.0,
        "priority": Priority.EXACT,
    }  # fmt: skip
    with pytest.raises(ContractError) as caught:
        ReadRequest(**{**fields, **changes})  # type: ignore[arg-type]
    assert (caught.value.finding.code, caught.value.finding.where) == ("runtime.request", where)


def test_a_stale_request_is_not_read(stores: Stores) -> None:
    reader = PlainReader(stores.files)
    reader.advance("lane 0", 1)
    (ticket,) = reader.submit([expert_request(stores.experts, ASKER, 0)])
    assert (ticket.state, ticket.reason) == (State.CANCELLED, "stale")


def test_a_ticket_is_released_once(stores: Stores) -> None:
    reader = PlainReader(stores.files)
    (ticket,) = reader.submit([expert_request(stores.experts, ASKER, 0)])
    reader.release(ticket)
    with pytest.raises(ContractError) as caught:
        reader.release(ticket)
    assert (caught.value.finding.code, caught.value.finding.where) == ("runtime.release", "ticket 0")
