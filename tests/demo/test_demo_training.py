"""The pieces that a child process trains with: batches, counting, hashing, attention."""

import pytest

torch = pytest.importorskip("torch")

import data  # noqa: E402
import measure  # noqa: E402
import model  # noqa: E402
import texts  # noqa: E402
from conftest import ROOT  # noqa: E402

TEXT = bytes(range(256)) * 4


def small_model():
    torch.manual_seed(0)
    return model.ByteLanguageModel(layers=2, width=16, heads=2, context=8)


def test_batches_repeat_and_targets_are_the_next_bytes():
    first, second = (data.Batches(TEXT, batch=3, context=8, seed=1) for _ in range(2))
    for _ in range(3):
        tokens, targets = first.next()
        again, _ = second.next()
        assert tokens.shape == (3, 8) and torch.equal(tokens, again)
        assert torch.equal(tokens[:, 1:], targets[:, :-1])


def test_batches_do_not_touch_the_global_generator():
    batches = data.Batches(TEXT, batch=3, context=8, seed=1)
    before = torch.random.get_rng_state()
    batches.next()
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_shortest_text_that_works():
    tokens, targets = data.Batches(TEXT[:9], batch=1, context=8, seed=1).next()
    assert tokens.tolist() == [list(range(8))] and targets.tolist() == [list(range(1, 9))]
    with pytest.raises(ValueError, match="more than 8"):
        data.Batches(TEXT[:8], batch=1, context=8, seed=1)


def test_the_tree_has_text_to_train_on():
    assert len(texts.collect_text(ROOT)) > 2000


def test_no_position_sees_a_later_one():
    q, k, v = torch.randn(3, 1, 2, 6, 4)
    before = model.causal_attention(q, k, v)
    k[..., 4:, :] += 1
    v[..., 4:, :] += 1
    after = model.causal_attention(q, k, v)
    assert torch.equal(before[..., :4, :], after[..., :4, :])
    assert not torch.equal(before[..., 4:, :], after[..., 4:, :])


def test_old_and_new_attention_agree(monkeypatch):
    if not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        return  # there is only the old one
    q, k, v = torch.randn(3, 2, 2, 6, 4)
    fused = model.causal_attention(q, k, v)
    monkeypatch.delattr(torch.nn.functional, "scaled_dot_product_attention")
    assert torch.allclose(fused, model.causal_attention(q, k, v), atol=1e-6)


def test_saved_bytes_count_each_storage_once_and_no_parameter():
    layer = torch.nn.Linear(4, 4, bias=False)
    x = torch.randn(8, 4, requires_grad=True)
    count = measure.SavedBytes(layer)
    with count:
        loss = (layer(x) * x[:, :]).sum() + layer(x).sum()
    saved = count.result()
    # x once, although it is saved three times, and the output of the first layer.
    assert saved["storages"] == 2 and saved["bytes"] == 2 * 8 * 4 * 4
    assert saved["by_size"] == [{"size_bytes": 128, "count": 2}]
    loss.backward()


def test_counting_changes_no_loss():
    tokens, targets = data.Batches(TEXT, batch=3, context=8, seed=1).next()
    net = small_model()
    plain = net(tokens, targets)
    with measure.SavedBytes(net):
        counted = net(tokens, targets)
    assert plain.item().hex() == counted.item().hex()


def test_hash_sees_one_bit_of_one_weight():
    net = small_model()
    before = measure.weights_sha256(net)
    assert before == measure.weights_sha256(small_model())
    with torch.no_grad():
        net.head.weight.view(torch.int32)[3, 3] ^= 1
    assert measure.weights_sha256(net) != before


def test_resident_figures_are_plausible():
    with measure.ResidentSampler(interval_s=0.01) as sampler:
        block = torch.ones(16 << 20)
    resident, from_files = measure.resident_now()
    assert from_files < resident <= measure.peak_resident_bytes() + (4 << 20)
    assert len(sampler.samples) >= 1 and block.numel() == 16 << 20
