"""The kernel against the plain form. Skipped, visibly, where there is no GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from outdraft.distill.data.sampler import SampleRequest, TextSampler
from outdraft.distill.target import Target, load_network

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("window", [None, 5, 100])
@pytest.mark.parametrize(("kv_heads", "per", "dim"), [(3, 3, 64), (2, 4, 16), (1, 20, 128)])
def test_it_mixes_what_a_text_has(window: int | None, kv_heads: int, per: int, dim: int) -> None:
    from outdraft.distill.decode_attention import decode_attention

    generator = torch.Generator("cuda").manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", generator=generator)

    at = [0, 63, 64, 200, 299]
    q = drawn(len(at), kv_heads * per, 1, dim)
    keys, values = drawn(len(at), kv_heads, 300, dim), drawn(len(at), kv_heads, 300, dim)
    found = decode_attention(q, keys, values, torch.tensor(at, device="cuda"), window)
    for row, last in enumerate(at):
        seen = slice(max(0, last + 1 - (window or 300)), last + 1)
        mine = [x[row : row + 1, :, seen] for x in (keys, values)]
        expected = F.scaled_dot_product_attention(q[row : row + 1], *mine, enable_gqa=True)
        assert torch.allclose(found[row], expected[0], atol=1e-4)


def test_a_sampler_with_it_writes_the_same_texts(target: Target) -> None:
    device = torch.device("cuda")
    network = load_network(target.files.path, target.spec, dtype=torch.float32, device=device)
    wanted = [
        SampleRequest([40 + (i + j) % 8 for j in range(3 + 5 * i)], 0.0, 20) for i in range(7)
    ]
    texts = []
    for plain in (False, True):
        sampler = TextSampler(network, num_texts=3, room=96, max_tokens=40, eos_ids=(0,), top=4)
        assert sampler._cache.attend is not None
        if plain:
            sampler._cache.attend = None
        texts.append([one.tokens.tolist() for one in sampler.run(wanted, seed=0)])
    assert texts[0] == texts[1]
