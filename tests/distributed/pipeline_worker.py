"""One process of a pipeline; losses and weights must be those of a single process.
See test_pipeline.py. Arguments: stages, virtual stages."""

from __future__ import annotations

import sys

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme import nn
from bireme.distributed import fleet
from bireme.distributed.fleet.meta_parallel import LayerDesc, PipelineLayer, SharedLayerDesc

STEPS, MICRO, ROWS, WORDS, WIDTH = 4, 4, 2, 11, 6


class Block(nn.Layer):
    """Passes a pair on: what it changes, and something that only travels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, pair):
        x, mask = pair
        return x + paddle.tanh(self.linear(self.norm(x))) * mask, mask


class Table(nn.Embedding):
    def forward(self, ids):
        x = super().forward(ids)
        return x, (ids > 2).astype("float32").unsqueeze(-1)


def scores(table: nn.Embedding, pair):
    return paddle.matmul(pair[0], table.weight, transpose_y=True)


def descriptions() -> list:
    blocks = [LayerDesc(Block, WIDTH) for _ in range(4)]
    first = SharedLayerDesc("table", Table, None, "weight", WORDS, WIDTH)
    last = SharedLayerDesc("table", Table, scores, "weight", WORDS, WIDTH)
    return [first, *blocks, last]


def loss_fn(logits, label):
    return nn.functional.cross_entropy(logits.reshape([-1, WORDS]), label.reshape([-1]))


class Whole(nn.Layer):
    """The same in one process."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(WORDS, WIDTH)
        self.blocks = nn.LayerList([Block(WIDTH) for _ in range(4)])

    def forward(self, ids):
        pair = self.table(ids)
        for block in self.blocks:
            pair = block(pair)
        return scores(self.table, pair)


def names_in_pipeline(name: str) -> str:
    if name.startswith("table."):
        return "shared_layers." + name
    _, number, rest = name.split(".", 2)
    return f"{int(number) + 1}.{rest}"


def weights(whole: Whole) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(5)
    made = {}
    for name, p in whole.state_dict().items():
        made[name] = (rng.randn(*p.shape) * 0.5).astype("float32")
    return made


def optimizer(parameters):
    return paddle.optimizer.AdamW(
        0.05, parameters=parameters, grad_clip=nn.ClipGradByGlobalNorm(0.5)
    )


def batches(copies: int):
    rng = np.random.RandomState(1)
    for _ in range(STEPS):
        yield rng.randint(0, WORDS, (2, copies, MICRO * ROWS, 3))


def reference(copies: int) -> tuple[list[float], dict[str, np.ndarray], np.ndarray]:
    whole = Whole()
    whole.set_state_dict(weights(whole))
    opt = optimizer(whole.parameters())
    losses = []
    for ids, labels in batches(copies):
        own = []
        for copy in range(copies):
            loss = loss_fn(whole(paddle.to_tensor(ids[copy])), paddle.to_tensor(labels[copy]))
            (loss / copies).backward()
            own.append(loss.item())
        opt.step()
        opt.clear_grad()
        losses.append(own)
    out = whole(paddle.to_tensor(ids[0])).numpy()
    return losses, {k: v.numpy() for k, v in whole.state_dict().items()}, out


def main() -> None:
    stages, virtual = int(sys.argv[1]), int(sys.argv[2])
    copies = dist.get_world_size() // stages
    want, final, results = reference(copies)

    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": copies, "pp_degree": stages}
    strategy.pipeline_configs = {"accumulate_steps": MICRO, "micro_batch_size": ROWS}
    fleet.init(is_collective=True, strategy=strategy)
    hcg = fleet.get_hybrid_communicate_group()
    layers = PipelineLayer(
        descriptions(),
        num_stages=stages,
        loss_fn=loss_fn,
        seg_method="layer:Block",
        num_virtual_pipeline_stages=virtual,
        recompute_interval=1 if virtual == 1 else 0,
    )
    given = {names_in_pipeline(k): v for k, v in weights(Whole()).items()}
    own = layers.state_dict()
    assert set(own) < set(given) or stages == 1, sorted(own)
    layers.set_state_dict({k: given[k] for k in own})
    model = fleet.distributed_model(layers)
    opt = fleet.distributed_optimizer(optimizer(layers.parameters()))
    copy = hcg.get_data_parallel_rank()
    for (ids, labels), expected in zip(batches(copies), want, strict=True):
        data = paddle.to_tensor(ids[copy]), paddle.to_tensor(labels[copy])
        loss = model.train_batch(data, opt)
        np.testing.assert_allclose(loss.item(), expected[copy], rtol=2e-4)
    ended = {names_in_pipeline(k): v for k, v in final.items()}
    for name, tensor in layers.state_dict().items():
        np.testing.assert_allclose(tensor.numpy(), ended[name], rtol=2e-3, atol=2e-4, err_msg=name)
    outs = model.eval_batch((paddle.to_tensor(ids[0]), None))
    if model.is_pipeline_last_stage():
        found = np.concatenate([o.numpy() for o in outs])
        np.testing.assert_allclose(found, results, rtol=2e-3, atol=2e-3)
    else:
        assert outs is None
    data = paddle.to_tensor(ids[copy]), paddle.to_tensor(labels[copy])
    after = model.eval_batch(data, compute_loss=True)
    assert after.item() < want[0][copy]
    print(f"rank {dist.get_rank()}: {STEPS} steps of {len(own)} tensors agree", flush=True)


if __name__ == "__main__":
    main()
