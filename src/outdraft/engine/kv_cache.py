"""The paged KV cache: who owns which block (BlockPool), and the tensors (KVCache).

A block holds the keys and values of `block_size` consecutive tokens. A full block whose
tokens are final can be shared: its hash covers every token from the start of the text, so
two texts with the same beginning use the same blocks. A partly filled block never is shared.
Freed blocks keep their contents until they are needed, oldest first.
"""

import mmap
from array import array
from collections import OrderedDict
from collections.abc import Sequence as Seq
from hashlib import blake2b
from math import prod

import torch
from torch import Tensor

# Block 0 belongs to no sequence: rows that only pad a step read and write there.
SCRATCH_BLOCK = 0


class BlockPool:
    """Who owns which block, without the tensors. Block 0 is never handed out."""

    def __init__(self, num_blocks: int, block_size: int, *, reuse: bool = True) -> None:
        if num_blocks < 2:
            raise ValueError(f"a pool needs at least 2 blocks, got {num_blocks}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._reuse = reuse
        self._owners = [0] * num_blocks
        # Insertion order is the order of reuse. Ascending at first, so that a lone sequence
        # gets consecutive blocks and its keys can be read in place.
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return self.num_blocks - 1 - len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def grow(self, table: list[int], num_tokens: int) -> bool:
        """Extends `table` to hold `num_tokens`. False, and nothing changed, if it cannot."""
        missing = self.blocks_for(num_tokens) - len(table)
        if missing > len(self._free):
            return False
        for _ in range(missing):
            table.append(self._take(near=table[-1] if table else None))
        return True

    def truncate(self, table: list[int], num_tokens: int) -> None:
        """Gives back the blocks after those of the first `num_tokens`."""
        keep = self.blocks_for(num_tokens)
        while len(table) > keep:
            self._drop(table.pop())

    def release(self, table: list[int]) -> None:
        # Last block first: the beginning of a text is the part most worth keeping.
        self.truncate(table, 0)

    def share(self, hashes: Seq[bytes]) -> list[int]:
        """The blocks of the longest known beginning among `hashes`, with one owner more."""
        table: list[int] = []
        for key in hashes:
            block = self._block_of.get(key)
            if block is None:
                break
            self._free.pop(block, None)
            self._owners[block] += 1
            table.append(block)
        return table

    def share_prefix(self, tokens: Seq[int], num_tokens: int) -> tuple[list[int], list[bytes]]:
        """The blocks of the longest known beginning of tokens[:num_tokens], and their hashes."""
        hashes: list[bytes] = []
        extend_hashes(hashes, tokens, num_tokens, self.block_size)
        table = self.share(hashes)
        return table, hashes[: len(table)]

    def publish(self, block: int, key: bytes) -> None:
        """Lets others find a full block of final tokens under its hash."""
        if self._reuse and key not in self._block_of and block not in self._hash_of:
            self._block_of[key] = block
            self._hash_of[block] = key

    def publish_text(
        self, table: Seq[int], hashes: list[bytes], tokens: Seq[int], num_final: int
    ) -> range:
        """Publishes the full blocks of tokens[:num_final] that `hashes` does not cover yet.

        `hashes` grows with them. Returns which blocks of the table they are.
        """
        first = len(hashes)
        extend_hashes(hashes, tokens, num_final, self.block_size)
        published = range(first, len(hashes))
        for index in published:
            self.publish(table[index], hashes[index])
        return published

    def forget(self) -> None:
        """Nothing published so far can be shared any more. Owners keep their blocks."""
        self._block_of.clear()
        self._hash_of.clear()

    def check(self, tables: Seq[Seq[int]]) -> None:
        """Raises AssertionError unless `tables` are exactly the owners of every used block."""
        owners = [0] * self.num_blocks
        for table in tables:
            for block in table:
                owners[block] += 1
        assert owners == self._owners, "a block has no owner, or is owned twice"
        assert owners[SCRATCH_BLOCK] == 0, "the scratch block was given out"
        free = {block for block in range(1, self.num_blocks) if not owners[block]}
        assert free == set(self._free), "the free list and the owners disagree"
        assert {b: h for h, b in self._block_of.items()} == self._hash_of

    def _take(self, near: int | None) -> int:
        # The next block in memory if it is free and holds nothing worth keeping.
        if near is not None and near + 1 in self._free and near + 1 not in self._hash_of:
            block = near + 1
            del self._free[block]
        else:
            block, _ = self._free.popitem(last=False)
        key = self._hash_of.pop(block, None)
        if key is not None:
            del self._block_of[key]
        self._owners[block] = 1
        return block

    def _drop(self, block: int) -> None:
        self._owners[block] -= 1
        if self._owners[block] == 0:
            self._free[block] = None
            if block not in self._hash_of:
                self._free.move_to_end(block, last=False)


def block_hash(previous: bytes, tokens: Seq[int]) -> bytes:
    """The hash of a full block, given the hash of all that comes before it."""
    return blake2b(array("q", tokens).tobytes(), key=previous, digest_size=16).digest()


def extend_hashes(hashes: list[bytes], tokens: Seq[int], num_final: int, block_size: int) -> None:
    """Appends to `hashes` until every full block of `tokens[:num_final]` has one."""
    while (len(hashes) + 1) * block_size <= num_final:
        start = len(hashes) * block_size
        previous = hashes[-1] if hashes else b""
        hashes.append(block_hash(previous, tokens[start : start + block_size]))


class KVCache:
    """Keys and values of every layer: (kv_heads, num_blocks, block_size, head_dim) each.

    Heads come first so that consecutive blocks are one matrix per head, without a copy.
    Zeroed, because masked positions are multiplied by zero and must not hold NaN. On a CPU blocks
    take memory once they are written to.
    """

    def __init__(
        self,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (num_kv_heads, num_blocks, block_size, head_dim)
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.keys = [_zeros(shape, dtype, device) for _ in range(num_layers)]
        self.values = [_zeros(shape, dtype, device) for _ in range(num_layers)]
        # The same memory by slot, (kv_heads, num_blocks * block_size, head_dim).
        self._slots = [
            (keys.flatten(1, 2), values.flatten(1, 2))
            for keys, values in zip(self.keys, self.values, strict=True)
        ]

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """keys, values (T, kv_heads, head_dim) → their slots: block * block_size + offset."""
        all_keys, all_values = self._slots[layer]
        all_keys.index_copy_(1, slots, keys.transpose(0, 1))
        all_values.index_copy_(1, slots, values.transpose(0, 1))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """On a CPU the system's own zero pages: torch would write each zero, and so take all memory."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    private = (
        {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    )
    pages = mmap.mmap(-1, prod(shape) * dtype.itemsize, **private)
    return torch.frombuffer(pages, dtype=dtype).view(shape)
