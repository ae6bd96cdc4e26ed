"""N-gram lookup: proposes what followed the last occurrence of the text's ending."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from outdraft.engine.proposers.proposer import DraftRequest, Proposal
from outdraft.engine.sequence import Sequence


@dataclass(slots=True)
class _Index:
    """Where each n-gram of one text was last followed by something."""

    follower: dict[tuple[int, ...], int] = field(default_factory=dict)
    num_indexed: int = 0  # endings of tokens[:num_indexed] are in


class NgramProposer:
    def __init__(self, min_match: int, max_match: int) -> None:
        self._sizes = range(max_match, min_match - 1, -1)  # longest match first
        self._indexes: dict[int, _Index] = {}

    def propose(self, requests: Seq[DraftRequest]) -> list[Proposal]:
        return [self._lookup(each.sequence, each.k) for each in requests]

    def release(self, sequence: Sequence) -> None:
        self._indexes.pop(sequence.id, None)

    def forget(self) -> None:
        """Nothing to drop: a text is only matched with itself."""

    def _lookup(self, sequence: Sequence, k: int) -> Proposal:
        tokens = sequence.tokens
        index = self._indexes.setdefault(sequence.id, _Index())
        # The current ending is left out: nothing follows it yet.
        for end in range(index.num_indexed + 1, len(tokens)):
            for size in self._sizes:
                if size <= end:
                    index.follower[tuple(tokens[end - size : end])] = end
        index.num_indexed = max(index.num_indexed, len(tokens) - 1)
        for size in self._sizes:
            if size < len(tokens):
                at = index.follower.get(tuple(tokens[len(tokens) - size :]))
                if at is not None:
                    return Proposal(_copy_from(tokens, at, k), match=size)
        return Proposal([])


def _copy_from(tokens: list[int], at: int, count: int) -> list[int]:
    """`count` tokens from `at`. After the end of the text, the draft continues from itself."""
    draft = tokens[at : at + count]
    while len(draft) < count:
        draft.append(draft[len(draft) - (len(tokens) - at)])
    return draft
