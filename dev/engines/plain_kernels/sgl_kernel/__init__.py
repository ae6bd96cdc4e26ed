"""Plain torch in place of SGLang's compiled CPU kernels: what NGRAM calls, no more.

For tests of our SGLang backend on machines without a GPU. Slow: nothing is measured with it.
"""

from __future__ import annotations

import ctypes

import torch


def assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, start, end, out, pool_len):
    at = 0
    for req, a, b in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=False):
        out[at : at + b - a] = req_to_token[req, a:b].to(out.dtype)
        at += b - a


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices, req_to_token, seq_lens, out, pool_len, topk, num_steps
):
    n = topk * num_steps
    for i, (req, a) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=False)):
        out.view(-1)[i * n : (i + 1) * n] = req_to_token[req, a : a + n].to(out.dtype)


def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus, stride):
    rows = torch.arange(accept_lens.numel())
    bonus.copy_(accept_tokens.view(-1)[rows * stride + accept_lens.long() - 1])


def fill_accept_out_cache_loc_cpu(accept_index, out_cache_loc, accept_out):
    kept = accept_index.view(-1)
    kept = kept[kept > -1].long()
    accept_out[: kept.numel()] = out_cache_loc[kept]


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    moves = [(t, s) for t, s in zip(tgt_loc.tolist(), src_loc.tolist(), strict=False) if t != s]
    for base, row in zip(data_ptrs.tolist(), strides.tolist(), strict=False):
        saved = [ctypes.string_at(base + s * row, row) for _, s in moves]
        for (t, _), data in zip(moves, saved, strict=False):
            ctypes.memmove(base + t * row, data, row)


def verify_tree_greedy_cpu(
    *,
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    targets = target_predict.reshape(-1).tolist()
    for b in range(candidates.shape[0]):
        index, child = retrive_index[b].tolist(), retrive_next_token[b].tolist()
        sibling, tokens = retrive_next_sibling[b].tolist(), candidates[b].tolist()
        last, accepted, at = index[0], 0, 0
        accept_index[b, 0] = last
        for _ in range(1, accept_index.shape[1]):
            at = child[at]
            while at != -1 and tokens[at] != targets[last]:
                at = sibling[at]
            if at == -1:
                break
            predicts[last] = targets[last]
            accepted += 1
            last = index[at]
            accept_index[b, accepted] = last
        accept_token_num[b] = accepted
        predicts[last] = targets[last]


def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start, end, out, pool_len):
    at = 0
    for req, a, b in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=False):
        req_to_token[req, a:b] = out[at : at + b - a].to(req_to_token.dtype)
        at += b - a


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} is not among the plain kernels")

    return missing
