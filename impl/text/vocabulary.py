"""Four questions about an id that one number can't answer, and selection that asks the right one.

Does a physical row exist? May it be sampled? Has it decode text? Does generation stop after it? Masking comes before
every selection policy; what decoding does with an id never makes it sampleable.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from assay.impl.text.ids import ID, is_integer, shown_id
from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding
from assay.spec.text import TextContract

if TYPE_CHECKING:  # clauses are listed where numpy can't be imported
    import numpy as np
    import numpy.typing as npt

Floats: TypeAlias = "npt.NDArray[np.floating]"

WIDTH = declare(
    "vocabulary.logits.width",
    Authority.RULE,
    "Logits have one value for each physical row.",
    source="field note AFN-005",
    cause="an output matrix cut to the tokenizer's ids",
)
VALUE = declare(
    "vocabulary.logits.value",
    Authority.RULE,
    "A logit of an id that may be sampled is a number, not NaN and not positive infinity.",
    source="field note AFN-005",
    cause="an overflow in the graph",
)
NOTHING = declare(
    "vocabulary.logits.empty",
    Authority.RULE,
    "After masking at least one id is left to choose.",
    source="field note AFN-005",
    cause="a grammar mask that allows nothing, or a graph that returned negative infinity everywhere",
)
MASK = declare(
    "vocabulary.mask",
    Authority.FORM,
    "A grammar's mask is 32-bit little-endian words that cover the ids exactly, or one boolean for each id.",
    source="field note AFN-005; the bit masks of public grammar engines",
    cause="a mask of another width, byte order or length, whose bits would stand for other ids",
)
POLICY = declare(
    "vocabulary.policy",
    Authority.FORM,
    "A selection policy keeps at least one id: top-k from 1 up, top-p in (0, 1], temperature above 0.",
    source="field note AFN-005",
    cause="a setting of zero",
)


class Vocabulary:
    """The id domain of one profile."""

    def __init__(self, contract: TextContract) -> None:
        self.physical_rows = contract.physical_rows
        self.effective_ids = contract.effective_ids
        self._stops = frozenset(contract.stop_ids)

    def has_row(self, id_: int) -> bool:
        """Whether the output matrix has a row for this id."""
        return is_integer(id_) and 0 <= id_ < self.physical_rows

    def is_sampleable(self, id_: int) -> bool:
        """Whether generation may choose this id."""
        return is_integer(id_) and 0 <= id_ < self.effective_ids

    def has_text(self, id_: int) -> bool:
        """Whether the tokenizer decodes this id to text; ids beyond its own decode to nothing."""
        return is_integer(id_) and 0 <= id_ < self.effective_ids

    def is_stop(self, id_: int) -> bool:
        """Whether generation ends after this id."""
        return is_integer(id_) and id_ in self._stops

    def bounded(self, ids: Sequence[int], where: str, *, rows: int | None = None) -> list[int]:
        """Returns ids as they are, each inside the domain of a consumer; the n-gram hash and the embedding use this.

        Args:
            ids: what the consumer is about to use as indices.
            where: the consumer, for the finding.
            rows: its domain; the ids that the tokenizer can make unless it says otherwise.

        Raises:
            ContractError: vocabulary.id, at the first id outside.
        """
        limit = self.effective_ids if rows is None else rows
        for index, one in enumerate(ids):
            if not is_integer(one) or not 0 <= one < limit:
                raise _broken(ID, f"{where}[{index}]", f"an integer in [0, {limit})", shown_id(one))
        return [int(one) for one in ids]

    def masked(self, logits: Floats, allowed: "npt.NDArray[np.uint32] | None" = None) -> Floats:
        """Returns a copy of the logits in which only ids that may be sampled are left.

        Args:
            logits: float [physical_rows].
            allowed: a grammar's bit mask, uint32 or int32, little-endian, [ceil(effective_ids / 32)] or
                [ceil(physical_rows / 32)], bit i of word w for id 32 w + i; bits beyond the tokenizer's ids count for
                nothing. Or bool [effective_ids].

        Returns:
            float [physical_rows], negative infinity wherever an id may not be chosen.

        Raises:
            ContractError: vocabulary.logits.width, vocabulary.logits.value, vocabulary.logits.empty or
                vocabulary.mask.
        """
        import numpy as np

        given: object = logits
        if not isinstance(given, np.ndarray) or not np.issubdtype(given.dtype, np.floating):
            kind = given.dtype if isinstance(given, np.ndarray) else type(given).__name__
            raise _broken(VALUE, "logits", "an array of floating-point numbers", kind)
        if logits.shape != (self.physical_rows,):
            raise _broken(WIDTH, "logits", f"shape ({self.physical_rows},)", logits.shape)
        out = np.full_like(logits, -np.inf)
        out[: self.effective_ids] = logits[: self.effective_ids]
        if allowed is not None:
            kept = self._kept(allowed)
            out[: self.effective_ids][~kept] = -np.inf
        bad = np.flatnonzero(np.isnan(out) | np.isposinf(out))
        if bad.size:
            raise _broken(
                VALUE, f"logits[{bad[0]}]", "a finite number or negative infinity", float(out[bad[0]])
            )
        if not np.isfinite(out).any():
            raise _broken(NOTHING, "logits", "an id to choose", "negative infinity everywhere")
        return out

    def _kept(self, allowed: object) -> "npt.NDArray[np.bool_]":
        """Returns for each id that the tokenizer knows whether the grammar allows it."""
        import numpy as np

        words = {-(-count // 32) for count in (self.effective_ids, self.physical_rows)}
        if isinstance(allowed, np.ndarray):
            if allowed.dtype == np.bool_ and allowed.shape == (self.effective_ids,):
                return allowed
            if allowed.dtype in (np.dtype("<u4"), np.dtype("<i4")) and allowed.shape in {(n,) for n in words}:
                octets = np.ascontiguousarray(allowed).view(np.uint8)
                return np.unpackbits(octets, bitorder="little")[: self.effective_ids].astype(bool)
            got = f"{allowed.dtype.str} of shape {allowed.shape}"
        else:
            got = type(allowed).__name__
        raise _broken(
            MASK, "allowed", f"{min(words)} little-endian 32-bit words or {self.effective_ids} booleans", got
        )

    def greedy(self, logits: Floats, allowed: "npt.NDArray[np.uint32] | None" = None) -> int:
        """Returns the id with the largest logit, the smallest such id among equals."""
        return int(self.masked(logits, allowed).argmax())

    def distribution(
        self,
        logits: Floats,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        allowed: "npt.NDArray[np.uint32] | None" = None,
    ) -> "npt.NDArray[np.float64]":
        """Returns the probabilities after mask, temperature, top-k and top-p, in this order.

        Returns:
            float64 [physical_rows]; exactly 0 for every id that may not be chosen.

        Order: equal logits are ordered by id; top-p keeps ids until their sum first reaches it.

        Raises:
            ContractError: vocabulary.policy, for a policy that keeps nothing; else as `masked`.
        """
        import numpy as np

        given: tuple[object, ...] = (temperature, top_p)
        numbers = all(
            isinstance(one, (int, float, np.integer, np.floating)) and not isinstance(one, bool)
            for one in given
        )
        whole = top_k is None or is_integer(top_k)
        if (
            not numbers
            or not whole
            or not 0 < temperature < float("inf")
            or not 0 < top_p <= 1
            or (top_k is not None and top_k < 1)
        ):
            raise _broken(
                POLICY,
                "policy",
                "finite temperature > 0, 0 < top_p <= 1, whole top_k >= 1",
                f"{temperature}, {top_p}, {top_k}",
            )
        scores = self.masked(logits, allowed).astype(np.float64)
        scores = (scores - scores.max()) / temperature
        order = np.argsort(-scores, kind="stable")
        order = order[np.isfinite(scores[order])]
        order = order[:top_k] if top_k is not None else order
        weights = np.exp(scores[order])
        weights /= weights.sum()
        if top_p < 1:
            before = np.cumsum(weights) - weights
            keep = before < top_p
            order, weights = order[keep], weights[keep] / weights[keep].sum()
        out = np.zeros(self.physical_rows, dtype=np.float64)
        out[order] = weights
        return out

    def sample(self, logits: Floats, generator: "np.random.Generator", **policy: float | None) -> int:
        """Returns an id drawn from `distribution` with the caller's generator."""
        chances = self.distribution(logits, **policy)  # type: ignore[arg-type]
        ids = chances.nonzero()[0]
        return int(generator.choice(ids, p=chances[ids] / chances[ids].sum()))


def _broken(code: str, where: str, expected: object, got: object) -> ContractError:
    return ContractError(Finding.of(code, "vocabulary", where, expected=expected, got=got))
