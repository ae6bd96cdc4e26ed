"""The block pool stays whole in whatever order blocks are taken, shared, published, given back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outdraft.engine.kv_cache import (
    SCRATCH_BLOCK,
    BlockPool,
    KVCache,
    block_hash,
    extend_hashes,
)

SIZE = 4


class PoolMachine(RuleBasedStateMachine):
    """Texts over two tokens, so that beginnings often agree. `contents` stands for the cache:
    what was last written into each block."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(8, SIZE)
        self.texts: list[tuple[list[int], list[int]]] = []  # tokens, table
        self.contents: dict[int, tuple[int, ...]] = {}

    def write(self, tokens: list[int], table: list[int], start: int) -> None:
        for index in range(start // SIZE, len(table)):
            block = table[index]
            owned = sum(block in other for _, other in self.texts if other is not table)
            assert owned == 0, "a block that others read was handed to a writer"
            # The block holds its own tokens behind all that comes before them.
            self.contents[block] = tuple(tokens[: (index + 1) * SIZE])

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=18))
    def start(self, tokens: list[int]) -> None:
        hashes: list[bytes] = []
        extend_hashes(hashes, tokens, len(tokens) - 1, SIZE)
        table = self.pool.share(hashes)
        for index, block in enumerate(table):
            assert self.contents[block] == tuple(tokens[: (index + 1) * SIZE])
        shared = len(table) * SIZE
        if self.pool.grow(table, len(tokens)):
            assert len(table) == self.pool.blocks_for(len(tokens))
            self.texts.append((tokens, table))
            self.write(tokens, table, shared)
        else:
            assert len(table) * SIZE == shared, "a refused growth changed the table"
            self.pool.release(table)

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), more=st.lists(st.integers(0, 1), min_size=1, max_size=6))
    def go_on(self, data: st.DataObject, more: list[int]) -> None:
        """Writes on, publishes what is full, and takes some of it back as a refusal would."""
        tokens, table = data.draw(st.sampled_from(self.texts))
        old = len(tokens)
        free, before = self.pool.num_free, list(table)
        if not self.pool.grow(table, old + len(more)):
            assert (self.pool.num_free, table) == (free, before)
            return
        self.write([*tokens, *more], table, old)
        kept = data.draw(st.integers(0, len(more)))
        tokens += more[:kept]
        self.pool.truncate(table, len(tokens))
        assert len(table) == self.pool.blocks_for(len(tokens))

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        tokens, table = data.draw(st.sampled_from(self.texts))
        hashes: list[bytes] = []
        extend_hashes(hashes, tokens, len(tokens), SIZE)
        for block, key in zip(table, hashes, strict=False):
            self.pool.publish(block, key)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        text = data.draw(st.sampled_from(self.texts))
        self.texts = [other for other in self.texts if other is not text]
        self.pool.release(text[1])
        assert text[1] == []
        self.pool.release(text[1])  # again, and nothing is freed twice

    @rule()
    def forget(self) -> None:
        self.pool.forget()

    @invariant()
    def whole(self) -> None:
        self.pool.check([table for _, table in self.texts])
        used = {block for _, table in self.texts for block in table}
        assert self.pool.num_used == len(used)
        assert self.pool.num_used + self.pool.num_free == self.pool.num_blocks - 1

    @invariant()
    def readers_find_their_own_text(self) -> None:
        for tokens, table in self.texts:
            for index in range(len(tokens) // SIZE):
                assert self.contents[table[index]] == tuple(tokens[: (index + 1) * SIZE])


TestPool = PoolMachine.TestCase
TestPool.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def published(pool: BlockPool, tokens: list[int]) -> tuple[list[int], list[bytes]]:
    table: list[int] = []
    hashes: list[bytes] = []
    assert pool.grow(table, len(tokens))
    extend_hashes(hashes, tokens, len(tokens), SIZE)
    for block, key in zip(table, hashes, strict=True):
        pool.publish(block, key)
    return table, hashes


def test_sharing_gives_the_same_blocks() -> None:
    pool = BlockPool(10, SIZE)
    table, hashes = published(pool, list(range(8)))
    assert pool.share(hashes) == table
    assert pool.share([hashes[0], b"unknown"]) == table[:1]
    assert pool.share([b"unknown", hashes[1]]) == []
    pool.check([table, table, table[:1]])


def test_a_lone_sequence_gets_consecutive_blocks() -> None:
    pool = BlockPool(10, SIZE)
    table: list[int] = []
    for length in range(1, 30):
        assert pool.grow(table, length)
    assert table == list(range(1, 9))
    assert SCRATCH_BLOCK not in table


def test_empty_blocks_go_first_then_the_longest_unused() -> None:
    pool = BlockPool(8, SIZE)
    old, old_hashes = published(pool, [1] * 8)
    new, new_hashes = published(pool, [2] * 8)
    pool.release(old)
    pool.release(new)
    table: list[int] = []
    assert pool.grow(table, 3 * SIZE)  # the three blocks nobody used
    assert len(pool.share(old_hashes)) == 2
    pool.check([table, [1, 2]])
    old = [1, 2]
    pool.release(old)  # used a moment ago: now the others are the oldest
    assert pool.grow(table, 4 * SIZE)
    assert pool.share(new_hashes[:2]) == [3]  # the end of a text goes before its beginning
    assert pool.share(old_hashes) == [1, 2]


def test_the_neighbour_is_left_alone_while_it_holds_something() -> None:
    pool = BlockPool(8, SIZE)
    table: list[int] = []
    assert pool.grow(table, SIZE)
    other, hashes = published(pool, [1] * SIZE)
    pool.release(other)
    assert pool.grow(table, 3 * SIZE)
    assert table == [1, 3, 4]
    assert pool.share(hashes) == [2]


def test_a_full_pool_refuses_and_changes_nothing() -> None:
    pool = BlockPool(3, SIZE)
    table: list[int] = []
    assert not pool.grow(table, 3 * SIZE)
    assert (table, pool.num_free) == ([], 2)
    assert pool.grow(table, 2 * SIZE)
    assert not pool.grow([], 1)


def test_forget_unpublishes_and_takes_nothing_away() -> None:
    pool = BlockPool(10, SIZE)
    table, hashes = published(pool, [1] * 8)
    done, done_hashes = published(pool, [2] * 8)
    pool.release(done)
    pool.forget()
    assert pool.share(hashes) == pool.share(done_hashes) == []
    pool.check([table])
    pool.publish(table[0], hashes[0])
    assert pool.share(hashes) == table[:1]


def test_no_reuse_shares_nothing() -> None:
    pool = BlockPool(10, SIZE, reuse=False)
    assert pool.share(published(pool, [1] * 8)[1]) == []


def test_check_sees_what_is_wrong() -> None:
    pool = BlockPool(10, SIZE)
    table, _ = published(pool, [1] * 8)
    for wrong in ([], [table, table], [table[:1]]):
        with pytest.raises(AssertionError):
            pool.check(wrong)
    with pytest.raises(ValueError, match="at least 2 blocks, got 1"):
        BlockPool(1, SIZE)


@given(st.lists(st.integers(0, 2**40), max_size=20), st.integers(0, 20))
def test_hashes_cover_the_whole_beginning(tokens: list[int], num_final: int) -> None:
    num_final = min(num_final, len(tokens))
    at_once: list[bytes] = []
    extend_hashes(at_once, tokens, num_final, SIZE)
    assert len(at_once) == num_final // SIZE
    bit_by_bit: list[bytes] = []
    for final in range(num_final + 1):
        extend_hashes(bit_by_bit, tokens, final, SIZE)
    assert bit_by_bit == at_once
    other: list[bytes] = []
    extend_hashes(other, [token + (i == 0) for i, token in enumerate(tokens)], num_final, SIZE)
    assert not set(other) & set(at_once)  # the first token is in every hash
    assert len(block_hash(b"", tokens)) == 16


# ---------------------------------------------------------------- tensors


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


def test_a_cache_takes_memory_where_it_is_written_to() -> None:
    """Seven engines with a cache of 1 GiB each, of which a run uses a tenth, are no 7 GiB."""
    before, page = resident_pages(), 4096
    cache = KVCache(2, 4096, 16, 2, 64, torch.float32, torch.device("cpu"))  # 128 MiB
    assert (resident_pages() - before) * page < 8 << 20
    keys = torch.ones(1, 2, 64)
    cache.write(1, torch.tensor([17]), keys, -keys)
    assert cache.keys[1][:, 1, 1].eq(1).all()
    assert cache.values[1][:, 1, 1].eq(-1).all()
    assert cache.keys[1].sum() == 128, "all else is zero"
    assert cache.keys[0].data_ptr() % 64 == 0, "as torch's own memory is aligned"


def test_caches_do_not_share_their_pages() -> None:
    first, second = (KVCache(1, 2, 4, 1, 2, torch.float32, torch.device("cpu")) for _ in range(2))
    first.keys[0].fill_(1)
    assert second.keys[0].eq(0).all()
    assert first.values[0].eq(0).all()
