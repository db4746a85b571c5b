"""Battery `fixtures`: shipped captures are changed in every way that would let them claim more than upstream said.

Each mutation is made on a private copy of two small fixtures. Whatever a forger could recompute (file digests, the
index) is recomputed after it, so that a mutation dies at the clause that it breaks and not at a checksum above it.
"""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

from assay.impl.captures.fixtures import (
    ARRAY_DIGEST,
    ARRAY_MISSING,
    ARRAY_SHAPE,
    ARRAY_UNLISTED,
    COUNT,
    FILE_DIGEST,
    FILE_EXTRA,
    FORM,
    INDEX,
    INDEX_FORM,
    INDEX_HEAD,
    INDEX_ROW,
    INPUTS,
    ORIGIN_PRODUCER,
    ORIGIN_STAGE,
    ORIGIN_WORD,
    PRODUCER_PIN,
    PROVENANCE,
    SET,
    index_lines,
    set_faults,
)
from assay.impl.captures.reading import DESCRIPTION, EXTENT, LAYER, PATH, SHAPE, whole_file_digest
from assay.impl.captures.reading import FORM as CAPTURE_FORM
from assay.impl.captures.reading import MISSING as FILE_MISSING
from assay.mutations.battery import Battery, BatteryContext, InvalidMutationError, Mutation
from assay.spec.errors import AssayError, Finding
from assay.spec.stages import rung_name

CASE: Final = "contract-fixture/tokens"
BESIDE: Final = "small/short-row-alone"
ARRAYS: Final = "arrays.bin"


@dataclass(slots=True)
class Copy:
    """A private copy of two fixtures, with the documents of the one that is changed.

    Attributes:
        root: the set.
        fixture: JSON of fixture.json.
        capture: JSON of capture.json.
        data: the array bytes.
        sign_files: whether file digests are recomputed after the change.
        after: changes to files, made once everything was signed.
    """

    root: Path
    fixture: dict[str, Any]
    capture: dict[str, Any]
    data: bytearray
    sign_files: bool = True
    after: list[Callable[[Path], None]] = field(default_factory=list)

    def array(self, stage: str, part: str = "", layer: int | None = None) -> dict[str, Any]:
        """Returns the provenance of the first array of this stage and part."""
        return _first(self.fixture["arrays"], stage, part, layer)

    def entry(self, stage: str, part: str = "", layer: int | None = None) -> dict[str, Any]:
        """Returns the capture's entry of the first array of this stage and part."""
        return _first(self.capture["entries"], stage, part, layer)


Change = Callable[[Copy], None]


def shipped() -> Path:
    """Returns the folder of the shipped captures."""
    return Path(str(resources.files("assay").joinpath("fixtures", "captures")))


def judge_changed(change: Change | None) -> list[Finding]:
    """Returns every finding on a private copy after one change; None changes nothing."""
    with tempfile.TemporaryDirectory(prefix="assay-fixtures-") as name:
        root = Path(name)
        for case in (CASE, BESIDE):
            shutil.copytree(shipped() / case, root / case)
        folder = root / CASE
        copy = Copy(
            root,
            json.loads((folder / PROVENANCE).read_bytes()),
            json.loads((folder / DESCRIPTION).read_bytes()),
            bytearray((folder / ARRAYS).read_bytes()),
        )
        before = (json.dumps(copy.fixture), json.dumps(copy.capture), bytes(copy.data))
        if change is not None:
            change(copy)
            after = (json.dumps(copy.fixture), json.dumps(copy.capture), bytes(copy.data))
            if before == after and not copy.after:
                raise InvalidMutationError("it changes nothing")
        _store(copy, folder)
        for late in copy.after:
            late(root)
        try:
            return set_faults(root)[0]
        except AssayError as error:
            return [error.finding]


def _store(copy: Copy, folder: Path) -> None:
    (folder / ARRAYS).write_bytes(copy.data)
    (folder / DESCRIPTION).write_text(json.dumps(copy.capture), encoding="utf-8")
    if copy.sign_files and isinstance(copy.fixture.get("files"), dict):
        for name in copy.fixture["files"]:
            copy.fixture["files"][name] = whole_file_digest(folder / name)
    (folder / PROVENANCE).write_text(json.dumps(copy.fixture), encoding="utf-8")
    rows = [INDEX_HEAD]
    for case in (CASE, BESIDE):
        try:
            rows += index_lines(copy.root / case, case)
        except AssayError:  # a document that can't be read has no rows; its own clause says so
            rows.append(f"case\t{case}\t-\t0")
    (copy.root / INDEX).write_text("\n".join(rows) + "\n", encoding="ascii")


def _first(items: list[dict[str, Any]], stage: str, part: str, layer: int | None) -> dict[str, Any]:
    for item in items:
        if (item["stage"], item["part"]) == (stage, part) and (layer is None or item["layer"] == layer):
            return item
    raise InvalidMutationError(f"no array {rung_name(stage, layer, part)}")


def _mutation(
    area: str, name: str, change: str, expected: str, do: Change, *, where: str = "", target: str = ""
) -> Mutation:
    return Mutation(
        id=name, area=area, field=target or name, change=change, expected=(expected,), where=where, payload=do
    )


def _list(_context: BatteryContext) -> list[Mutation]:
    return [
        *_bytes_changed(),
        *_origins_changed(),
        *_counts_changed(),
        *_membership_changed(),
        *_producers_changed(),
        *_inputs_changed(),
        *_forms_changed(),
        *_files_changed(),
        *_index_changed(),
    ]


def _bytes_changed() -> list[Mutation]:
    """One bit of one value of every kind of array, with every recomputable digest recomputed."""
    entries = json.loads((shipped() / CASE / DESCRIPTION).read_bytes())["entries"]
    kinds = {(entry["stage"], entry["part"]): entry for entry in entries}
    found = []
    for (stage, part), entry in kinds.items():

        def flip(copy: Copy, entry: dict[str, Any] = entry) -> None:
            copy.data[entry["offset"]] ^= 1

        name = rung_name(stage, entry["layer"], part)
        found.append(
            _mutation(
                "array", f"bit.{name}", "one bit of one value", ARRAY_DIGEST, flip, where=name, target=name
            )
        )
    return found


def _origins_changed() -> list[Mutation]:
    def origin(stage: str, part: str, value: str, **more: str) -> Change:
        return lambda copy: copy.array(stage, part).update(origin=value, **more)

    up, derived = ("gdn", ""), ("qsa", "selected")
    head = "transformers.models.qwen4_exp.modeling_qwen4_exp."
    rows: list[tuple[str, str, str, Change]] = [
        ("renamed", "a word that is no origin", ORIGIN_WORD, origin(*up, "upstream_capture")),
        ("renamed-derived", "a word that is no origin", ORIGIN_WORD, origin(*derived, "derived")),
        ("empty", "no word", ORIGIN_WORD, origin(*up, "")),
        ("capitals", "another spelling", ORIGIN_WORD, origin(*up, "Upstream-Capture")),
        ("lowered", "upstream's value called a control", ORIGIN_PRODUCER, origin(*up, "contract-control")),
        ("cross-check", "upstream's value called ours", ORIGIN_PRODUCER, origin(*up, "independent-cross-check")),
        ("to-derived", "upstream's value called derived", ORIGIN_PRODUCER, origin(*up, "derived-metadata")),
        ("raised", "our value called upstream's", ORIGIN_PRODUCER, origin(*derived, "upstream-capture")),
        ("raised-id", "our id called upstream's", ORIGIN_PRODUCER, origin("sampled_id", "", "upstream-capture")),
        (
            "borrowed-producer", "our value under upstream's name, made by our function", ORIGIN_PRODUCER,
            origin(*derived, "upstream-capture", producer="transformers"),
        ),
        (
            "borrowed-name", "our value under a name that upstream has", ORIGIN_STAGE,
            origin(
                *derived, "upstream-capture", producer="transformers",
                qualified_name=f"{head}Qwen4ExpTextQSAIndexer:output",
            ),
        ),
        ("derived-control", "a derived array called a control", ORIGIN_STAGE, origin(*derived, "contract-control")),
        (
            "wrong-object", "an array under the name of another module", ORIGIN_STAGE,
            origin(*up, "upstream-capture", qualified_name=f"{head}Qwen4ExpTextAttention:output[0]"),
        ),
        (
            "no-such-object", "a name that upstream does not have", ORIGIN_PRODUCER,
            origin(*up, "upstream-capture", qualified_name=f"{head}Qwen4ExpTextGatedDeltaNet:state"),
        ),
        ("no-such-producer", "a producer without a pin", ORIGIN_PRODUCER,
         origin(*up, "upstream-capture", producer="llama")),
        ("torch", "another pinned package as the producer", ORIGIN_STAGE,
         origin(*up, "upstream-capture", producer="torch")),
    ]  # fmt: skip
    return [_mutation("origin", f"origin.{name}", text, code, do) for name, text, code, do in rows]


def _counts_changed() -> list[Mutation]:
    def count(name: str, by: int) -> Change:
        return lambda copy: copy.fixture["counts"].update({name: copy.fixture["counts"].get(name, 0) + by})

    return [
        _mutation("count", f"count.{name}{by:+d}", f"{by:+d}", COUNT, count(name, by), where=f"counts.{name}")
        for name in ("arrays", "upstream-capture", "derived-metadata", "contract-control")
        for by in ((1, -1) if name != "contract-control" else (1,))
    ]


def _membership_changed() -> list[Mutation]:
    def drop_entry(copy: Copy) -> None:
        last = copy.capture["entries"][-1]
        copy.capture["entries"].remove(last)
        del copy.data[last["offset"] :]

    def drop_provenance(copy: Copy) -> None:
        one = copy.array("moe_gr_apply")
        copy.fixture["arrays"].remove(one)
        for name in ("arrays", one["origin"]):
            copy.fixture["counts"][name] -= 1

    def add_entry(copy: Copy) -> None:
        entry = {**copy.entry("output_head"), "stage": "gdn", "layer": 0, "part": "extra"}
        entry["offset"] = len(copy.data)
        copy.data += bytes(4 * entry["shape"][0] * entry["shape"][1])
        copy.capture["entries"].append(entry)

    def duplicate(copy: Copy) -> None:
        copy.fixture["arrays"].append(copy.array("embedding"))

    def reshape(copy: Copy) -> None:
        copy.array("gdn")["shape"].append(1)

    def retype(copy: Copy) -> None:
        copy.array("router", "ids")["dtype"] = "i32"

    return [
        _mutation("membership", "array.dropped", "removed from capture.json, with its bytes", ARRAY_MISSING,
                  drop_entry),
        _mutation("membership", "provenance.dropped", "removed from fixture.json, counts mended", ARRAY_UNLISTED,
                  drop_provenance),
        _mutation("membership", "array.added", "an array without provenance", ARRAY_UNLISTED, add_entry,
                  where="layers.0.gdn.extra"),
        _mutation("membership", "provenance.twice", "one array listed twice", COUNT, duplicate),
        _mutation("membership", "provenance.shape", "one more axis", ARRAY_SHAPE, reshape),
        _mutation("membership", "provenance.dtype", "i64 called i32", ARRAY_SHAPE, retype),
    ]  # fmt: skip


def _producers_changed() -> list[Mutation]:
    def pin(**values: Any) -> Change:
        return lambda copy: copy.fixture["producers"]["transformers"].update(values)

    def source(index: int) -> Change:
        return lambda copy: copy.fixture["producers"]["transformers"]["sources"][index].update(
            sha256="0" * 64
        )

    sources = json.loads((shipped() / CASE / PROVENANCE).read_bytes())["producers"]["transformers"]["sources"]
    rows: list[tuple[str, str, Change]] = [
        ("version", "5.24.1", pin(version="5.24.1")),
        ("wheel", "another wheel", pin(wheel_sha256="0" * 64)),
        ("no-wheel", "no wheel digest", pin(wheel_sha256=None)),
        ("distribution", "another RECORD", pin(distribution_sha256="0" * 64)),
        ("no-sources", "no source digests", pin(sources=[])),
        (
            "torch-version",
            "another torch",
            lambda copy: copy.fixture["producers"]["torch"].update(version="2.12.0"),
        ),
        *(
            (f"source.{one['path'].rsplit('/', 1)[-1]}", "another source file", source(index))
            for index, one in enumerate(sources)
        ),
    ]
    return [_mutation("producer", f"producer.{name}", text, PRODUCER_PIN, do) for name, text, do in rows]


def _inputs_changed() -> list[Mutation]:
    def token(copy: Copy) -> None:
        copy.capture["token_ids"][2] += 1

    return [
        _mutation("input", "input.token", "one token id", INPUTS, token),
        _mutation("input", "input.weights", "another digest of the weights", INPUTS,
                  lambda copy: copy.fixture["weights"].update(sha256="0" * 64)),
        _mutation("input", "input.of-upstream", "an upstream array made from something else", INPUTS,
                  lambda copy: copy.array("gdn").update(inputs=["0" * 64, "1" * 64])),
        _mutation("input", "input.of-derived", "a derived array made from something else", INPUTS,
                  lambda copy: copy.array("qsa", "selected").update(inputs=["0" * 64])),
        _mutation("input", "input.none", "a derived array made from nothing", INPUTS,
                  lambda copy: copy.array("sampled_id").update(inputs=[])),
    ]  # fmt: skip


def _forms_changed() -> list[Mutation]:
    def capture(**values: Any) -> Change:
        return lambda copy: copy.capture.update(values)

    def entry(**values: Any) -> Change:
        return lambda copy: copy.entry("gdn").update(values)

    return [
        _mutation("form", "form.extra-key", "a key that the schema lacks", FORM,
                  lambda copy: copy.fixture.update(note="trust me")),
        _mutation("form", "form.missing-key", "no run record", FORM, lambda copy: copy.fixture.pop("run") and None),
        _mutation("form", "form.schema", "another schema", FORM,
                  lambda copy: copy.fixture.update(schema="assay.fixture/2")),
        _mutation("form", "form.number-as-text", "a count as text", FORM,
                  lambda copy: copy.fixture["counts"].update(arrays="99")),
        _mutation("form", "capture.schema", "another schema", CAPTURE_FORM, capture(schema="assay.capture/2")),
        _mutation("form", "capture.extra-key", "a key that the schema lacks", CAPTURE_FORM, capture(batch=1)),
        _mutation("form", "entry.dtype", "a dtype that captures lack", CAPTURE_FORM, entry(dtype="f64")),
        _mutation("form", "entry.stage", "a stage that the graph lacks", CAPTURE_FORM, entry(stage="attention")),
        _mutation("form", "entry.no-layer", "no layer", LAYER, entry(layer=None)),
        _mutation("form", "entry.batch-axis", "a batch axis", SHAPE,
                  lambda copy: copy.entry("gdn")["shape"].insert(0, 1)),
        _mutation("form", "entry.offset", "an offset one value on", EXTENT,
                  lambda copy: copy.entry("gdn").update(offset=copy.entry("gdn")["offset"] + 4)),
        _mutation("form", "entry.path", "a path that leads out", PATH, entry(file="../tokens/arrays.bin")),
        _mutation("form", "entry.absolute", "an absolute path", PATH, entry(file="/arrays.bin")),
        _mutation("form", "entry.file", "a file that is not there", FILE_MISSING, entry(file="other.bin")),
    ]  # fmt: skip


def _files_changed() -> list[Mutation]:
    def unsigned(name: str) -> Change:
        def change(copy: Copy) -> None:
            copy.sign_files = False
            copy.fixture["files"][name] = "0" * 64

        return change

    def late(do: Callable[[Path], None]) -> Change:
        return lambda copy: copy.after.append(do)

    def add_folder(root: Path) -> None:
        shutil.copytree(root / BESIDE, root / "small" / "another")

    return [
        _mutation("file", f"file.digest.{name}", "another digest", FILE_DIGEST, unsigned(name), where=name)
        for name in (ARRAYS, DESCRIPTION)
    ] + [
        _mutation("file", "file.unlisted", "a file without a digest", FILE_EXTRA,
                  lambda copy: copy.fixture["files"].pop(ARRAYS) and None, where=ARRAYS),
        _mutation("file", "file.no-description", "no digest of capture.json", FILE_DIGEST,
                  lambda copy: copy.fixture["files"].pop(DESCRIPTION) and None, where=DESCRIPTION),
        _mutation("file", "file.rejected", "a .rej file left behind", FILE_EXTRA,
                  late(lambda root: (root / CASE / "arrays.bin.rej").touch())),
        _mutation("file", "file.cut", "four bytes off the end", EXTENT, lambda copy: copy.data.__delitem__(slice(-4, None))),
        _mutation("file", "file.longer", "four bytes more", EXTENT, lambda copy: copy.data.extend(bytes(4))),
        _mutation("file", "file.folder-removed", "a whole fixture removed", SET,
                  late(lambda root: shutil.rmtree(root / BESIDE))),
        _mutation("file", "file.folder-added", "a fixture that the index lacks", SET,
                  late(add_folder)),
    ]  # fmt: skip


def _index_changed() -> list[Mutation]:
    def edit(do: Callable[[str], str]) -> Change:
        def late(root: Path) -> None:
            text = (root / INDEX).read_text(encoding="ascii")
            if do(text) == text:
                raise InvalidMutationError("the index does not hold the text to change")
            (root / INDEX).write_text(do(text), encoding="ascii")

        return lambda copy: copy.after.append(late)

    return [
        _mutation("index", "index.head", "another version", INDEX_FORM,
                  edit(lambda text: text.replace(INDEX_HEAD, "assay-fixtures\t2", 1))),
        _mutation("index", "index.cut", "cut inside a row", INDEX_FORM, edit(lambda text: text[:-80])),
        _mutation("index", "index.origin", "an origin in the index alone", INDEX_ROW,
                  edit(lambda text: text.replace("derived-metadata", "upstream-capture", 1))),
        _mutation("index", "index.offset", "an offset in the index alone", INDEX_ROW,
                  edit(lambda text: text.replace("\t768\t96\t", "\t772\t96\t", 1))),
        _mutation("index", "index.row-dropped", "one array row dropped", INDEX_ROW,
                  edit(lambda text: "\n".join(text.split("\n")[:5] + text.split("\n")[6:]))),
        _mutation("index", "index.case-dropped", "a fixture dropped from the index", SET,
                  edit(lambda text: "\n".join(row for row in text.split("\n") if BESIDE not in row))),
    ]  # fmt: skip


def _judge(mutation: Mutation, _context: BatteryContext) -> list[Finding]:
    return judge_changed(mutation.payload)


BATTERY: Final = Battery(
    name="fixtures",
    title="A shipped capture can't claim more than upstream said: every change of bytes, origins or counts is found.",
    mutations=_list,
    judge=_judge,
    control=lambda _context: judge_changed(None),
    forced=lambda context: _list(context)[0],
)
