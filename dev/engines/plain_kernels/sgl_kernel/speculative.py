"""What SGLang's NGRAM asks of its speculative kernels, and an attention that can verify."""

from __future__ import annotations

import torch


def reconstruct_indices_from_tree_mask(
    tree_mask, seq_lens, positions, index, next_token, sibling, bs, n
):
    ancestors = tree_mask.view(bs, n, n).bool().tril(-1)
    place = torch.arange(n)
    positions.view(bs, n).copy_(ancestors.sum(-1) + seq_lens.view(-1, 1))
    index.view(bs, n).copy_(torch.arange(bs * n).view(bs, n))
    parent = torch.where(ancestors, place.view(1, 1, n), -1).amax(-1)  # (bs, n)
    first = torch.where(ancestors, place.view(1, n, 1), n).amin(1)
    next_token.view(bs, n).copy_(torch.where(first < n, first, -1))
    same = (parent[:, :, None] == parent[:, None, :]) & (place.view(n, 1) > place.view(1, n))
    after = torch.where(same, place.view(1, n, 1), n).amin(1)
    sibling.view(bs, n).copy_(torch.where((parent >= 0) & (after < n), after, -1))


def _teach_torch_native_to_verify():
    """Its extend knows prompts only: a chain under verification is an extend behind seq_lens."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend as Backend

    plain = Backend.forward_extend

    def forward_extend(self, q, k, v, layer, batch, save_kv_cache=True):
        if not batch.forward_mode.is_target_verify():
            return plain(self, q, k, v, layer, batch, save_kv_cache)
        kept = batch.seq_lens, batch.extend_prefix_lens, batch.extend_seq_lens
        n = batch.spec_info.draft_token_num
        batch.seq_lens, batch.extend_prefix_lens = kept[0] + n, kept[0]
        batch.extend_seq_lens = torch.full_like(kept[0], n)
        try:
            return plain(self, q, k, v, layer, batch, save_kv_cache)
        finally:
            batch.seq_lens, batch.extend_prefix_lens, batch.extend_seq_lens = kept

    Backend.forward_extend = forward_extend


_teach_torch_native_to_verify()
