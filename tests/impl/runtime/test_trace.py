"""A recorded run is a valid trace, whatever happens; a piece of one is inconclusive, and never more."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from runtime_toys import Stores

from assay.impl.runtime.faulty_device import Faults, FaultyDevice
from assay.impl.runtime.limits import LaneLimits
from assay.impl.runtime.plans import Asker, expert_request, row_requests, store_digest
from assay.impl.runtime.recorder import Recorder, trace_header
from assay.impl.runtime.service import StreamReader
from assay.impl.runtime.tickets import Lane, Phase, Priority
from assay.impl.runtime.trace_judge import judge_trace, read_trace
from assay.mutations.trace_sample import sample_lines
from assay.provenance.kinds import judge_path
from assay.spec.documents.trace import TraceFooter, TraceHeader
from assay.spec.errors import AdmissionError
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.verdicts import Verdict

RECORD = 3 * 128 * 64 * 36 // 64
LIMITS = {Lane.EXPERT: LaneLimits(2, 3, RECORD), Lane.PLE: LaneLimits(1, 2, 4 * 4096)}


def header(stores: Stores, **options: Any) -> TraceHeader:
    kinds = {store_digest(stores.experts): "experts", store_digest(stores.rows): "rows"}
    return trace_header(LIMITS, kinds, producer="assay tests", **options)


def judged(path: Path) -> Judgement:
    return judge_trace(path, JudgeOptions())


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("seed", range(4))
def test_a_run_with_faults_withdrawals_and_stale_generations_is_a_valid_trace(
    stores: Stores, tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "trace.jsonl"
    device = FaultyDevice(
        Faults(short=0.2, interrupt=0.1, delay=0.3, error=0.1, corrupt=0.1, delay_s=0.001), seed
    )
    recorder = Recorder(path, header(stores), buffer_lines=7)
    with recorder, StreamReader(stores.files, LIMITS, device=device, observer=recorder) as reader:
        for turn in range(8):
            asker = Asker("lane 0", turn, Phase.DECODE, turn % 3)
            reader.advance("lane 0", turn)
            predicted = reader.submit(
                [expert_request(stores.experts, asker, one, priority=Priority.NEAR) for one in range(3)]
            )
            exact = reader.submit([expert_request(stores.experts, asker, one) for one in (1, 3)])
            exact += reader.submit(row_requests(stores.rows, asker, [turn, 50 + turn], slot_bytes=4 * 4096))
            for ticket in exact:
                try:
                    reader.wait(ticket)
                except AdmissionError:
                    continue
                recorder.routed("lane 0", turn % 3, turn, (1, 3), (0.5, 0.5), (True, False))
                reader.release(ticket)
            reader.cancel(predicted[0])
    assert recorder.finding is None
    assert (judged(path).findings, judged(path).verdict) == ([], Verdict.ACCEPTED)


def test_the_footer_accounts_for_the_bytes_of_the_reads(stores: Stores, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with (
        Recorder(path, header(stores)) as recorder,
        StreamReader(stores.files, LIMITS, observer=recorder) as reader,
    ):
        reader.wait(reader.submit([expert_request(stores.experts, Asker("a", 0, Phase.DECODE, 0), 0)])[0])
    *_, footer = read_trace(path)
    assert isinstance(footer, TraceFooter)
    assert (footer.logical_bytes, footer.direct_bytes) == (RECORD, 0)


def test_a_trace_is_recognised_and_accepted(tmp_path: Path) -> None:
    path = written(tmp_path / "run", b"".join(sample_lines()))
    judgement = judge_path(path, JudgeOptions())
    assert (judgement.kind, judgement.verdict, judgement.is_private) == ("trace", Verdict.ACCEPTED, True)


def test_every_prefix_of_whole_lines_is_inconclusive_and_nothing_worse(tmp_path: Path) -> None:
    lines = sample_lines()
    for count in range(1, len(lines)):
        judgement = judged(written(tmp_path / "run", b"".join(lines[:count])))
        assert [one.code for one in judgement.findings] == ["trace.truncated"], count
        assert judgement.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("cut", [1, 2, 50, 300])
def test_a_piece_of_a_line_at_the_end_is_inconclusive(tmp_path: Path, cut: int) -> None:
    judgement = judged(written(tmp_path / "run", b"".join(sample_lines())[:-cut]))
    assert [(one.code, one.where) for one in judgement.findings] == [("trace.truncated", "run")]


def test_a_broken_line_in_the_middle_is_refused(tmp_path: Path) -> None:
    lines = list(sample_lines())
    lines[3] = lines[3][:40] + b"\n"
    judgement = judged(written(tmp_path / "run", b"".join(lines)))
    assert judgement.verdict is Verdict.REJECTED
    assert (judgement.findings[0].code, judgement.findings[0].where) == ("trace.form", "line 4: line")


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path: Path) -> None:
    judgement = judged(written(tmp_path / "run", sample_lines()[0] + b"[" * (1 << 20)))
    assert (judgement.findings[0].code, judgement.findings[0].where) == ("trace.form", "line 2: line")


def test_findings_of_a_hostile_trace_are_bounded(tmp_path: Path) -> None:
    judgement = judged(written(tmp_path / "run", sample_lines()[0] + b"{}\n" * 100_000))
    assert len(judgement.findings) == 1000


def test_owners_of_a_hostile_trace_are_bounded(tmp_path: Path) -> None:
    lines = (
        b'{"line":"generation","t":1,"owner":"%d","generation":1}\n' % number for number in range(65_536 + 5)
    )
    judgement = judged(written(tmp_path / "run", sample_lines()[0] + b"".join(lines)))
    assert next(one.where for one in judgement.findings if one.code == "trace.bound") == (
        "line 65538: generation of 65536"
    )


def test_a_disk_that_fills_up_ends_the_recording_and_not_the_run(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = Recorder(path, header(stores))
    real = os.write

    def full(descriptor: int, data: Any) -> int:
        if descriptor == recorder._descriptor:
            raise OSError(errno.ENOSPC, "no space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with StreamReader(stores.files, LIMITS, observer=recorder) as reader:
        reader.wait(reader.submit([expert_request(stores.experts, Asker("a", 0, Phase.DECODE, 0), 0)])[0])
    recorder.close()
    assert recorder.finding is not None
    assert (recorder.finding.code, recorder.finding.where) == ("trace.write", str(path))
    assert judged(path).verdict is Verdict.INCONCLUSIVE


def test_a_folder_that_is_not_there_is_one_finding(stores: Stores, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "none" / "trace", header(stores))
    recorder.close()
    assert recorder.finding is not None
    assert recorder.finding.code == "trace.write"


def test_a_file_of_another_kind_stays_as_it_is(stores: Stores, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF and what follows")
    recorder = Recorder(path, header(stores))
    recorder.close()
    assert recorder.finding is not None
    assert (recorder.finding.code, recorder.finding.where) == ("trace.write", str(path))
    assert recorder.finding.got == "a file of another kind, which stays"
    assert path.read_bytes() == b"GGUF and what follows"


def test_a_trace_that_another_run_is_writing_is_left_to_it(stores: Stores, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with Recorder(path, header(stores)) as first:
        second = Recorder(path, header(stores))
        second.close()
    assert first.finding is None
    assert second.finding is not None
    assert (second.finding.code, second.finding.where) == ("trace.write", str(path))
    assert second.finding.got == "another run is writing it"
    assert judged(path).verdict is Verdict.ACCEPTED


def test_a_recorder_keeps_no_more_notes_than_it_was_allowed(stores: Stores, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "trace", header(stores), buffer_lines=10)
    most = 0
    for token in range(1000):
        recorder.routed("a", 0, token, (1,), (1.0,), (True,))
        most = max(most, len(recorder._notes))
    recorder.close()
    assert most < 10


def test_stages_are_timed_by_the_clock_of_the_reader(stores: Stores, tmp_path: Path) -> None:
    ticks = iter(range(100, 2000, 10))
    path = tmp_path / "trace"
    recorder = Recorder(path, header(stores), clock=lambda: next(ticks))
    with recorder.stage("a", 3, "moe"):
        pass
    recorder.close()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert lines[1] == {"line": "stage", "owner": "a", "layer": 3, "stage": "moe", "start": 10, "end": 20}
