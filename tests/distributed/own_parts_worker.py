"""A process that trains on its own part of the batch, as programs for Paddle do: rows and seed are
its own. Its losses and weights must be those of one process on the global batch; the first process
computes those beside. See test_own_parts.py. Arguments: a way of training, degrees."""

from __future__ import annotations

import sys

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme import nn
from bireme.distributed import fleet
from bireme.distributed.fleet.meta_parallel import (
    ColumnParallelLinear,
    LayerDesc,
    ParallelCrossEntropy,
    PipelineLayer,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from bireme.distributed.sharding import group_sharded_parallel
from bireme.nn import functional as F

STEPS, ROWS, WORDS, LENGTH, WIDTH, HEADS = 8, 4, 16, 5, 8, 2


class Block(nn.Layer):
    """Attention and a wide layer, cut over the processes of a model where there are several."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = ColumnParallelLinear(WIDTH, 3 * WIDTH, has_bias=False, gather_output=False)
        self.out = RowParallelLinear(WIDTH, WIDTH, input_is_parallel=True)
        self.up = ColumnParallelLinear(WIDTH, 4 * WIDTH, has_bias=True, gather_output=True)
        self.down = RowParallelLinear(4 * WIDTH, WIDTH, input_is_parallel=False)

    def forward(self, x):
        # As clients write it: the number of heads of this part, and its columns.
        heads = HEADS // self.qkv.world_size
        q, k, v = self.qkv(self.norm(x)).reshape([0, 0, heads, -1]).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.reshape([0, 0, -1]))
        return x + self.down(F.gelu(self.up(x)))


class Table(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words = VocabParallelEmbedding(WORDS, WIDTH)

    def forward(self, ids):
        return self.words(ids)


class Head(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.scores = ColumnParallelLinear(WIDTH, WORDS, has_bias=False, gather_output=False)

    def forward(self, x):
        return self.scores(x)


def loss_fn(logits, labels):
    return ParallelCrossEntropy()(logits, labels).mean()


class Model(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LayerList([Table(), Block(), Block(), Head()])

    def forward(self, ids):
        for layer in self.layers:
            ids = layer(ids)
        return ids


def whole_weights(names_and_shapes) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(7)
    return {n: (rng.randn(*s) * 0.3).astype("float32") for n, s in names_and_shapes}


class Alone:
    """The same in one process, with NumPy's weights; no group of processes is asked for."""

    def __init__(self) -> None:
        import bireme.distributed.fleet.meta_parallel.layers as layers

        before, layers.cutting_of = layers.cutting_of, lambda group: cutting.Whole()
        try:
            self.model = Model()
            self.cross_entropy = ParallelCrossEntropy()
        finally:
            layers.cutting_of = before

    def loss(self, ids, labels):
        return self.cross_entropy(self.model(ids), labels).mean()


from bireme.distributed.fleet.meta_parallel import cutting  # noqa: E402


def part_of(array: np.ndarray, param, rank: int, count: int) -> np.ndarray:
    """A process's part of a whole weight. Columns of q, k and v lie by head."""
    if not getattr(param, "is_distributed", False):
        return array
    return np.split(array, count, param.split_axis)[rank]


def make_optimizer(model, kind: str):
    clip = nn.ClipGradByGlobalNorm(0.5)
    if kind == "momentum":
        return paddle.optimizer.Momentum(0.05, 0.9, parameters=model.parameters(), grad_clip=clip)
    return paddle.optimizer.AdamW(0.01, parameters=model.parameters(), grad_clip=clip)


def batch(step: int, part: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(1000 * step + part)
    return rng.randint(0, WORDS, (ROWS, LENGTH)), rng.randint(0, WORDS, (ROWS, LENGTH))


def main() -> None:
    how, *rest = sys.argv[1:]
    degrees = dict(zip(("dp", "mp", "pp", "sharding"), map(int, rest), strict=True))
    me = dist.get_rank()
    paddle.seed(100 + me)  # a seed of its own
    np.random.seed(100 + me)
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {f"{k}_degree": v for k, v in degrees.items()}
    strategy.pipeline_configs = {"accumulate_steps": 2, "micro_batch_size": ROWS // 2}
    strategy.sharding_configs = {"stage": 1 if how.startswith("group") else int(how)}
    fleet.init(is_collective=True, strategy=strategy)
    hcg = fleet.get_hybrid_communicate_group()
    mp, mp_rank = degrees["mp"], hcg.get_model_parallel_rank()
    copies = hcg.get_copies_group()
    piped = degrees["pp"] > 1
    alone = Alone()
    shapes = [(n, tuple(p.shape)) for n, p in alone.model.named_parameters()]
    weights = whole_weights(shapes)
    for n, p in alone.model.named_parameters():
        p.set_value(weights[n])
    if piped:
        blocks = [LayerDesc(Table), LayerDesc(Block), LayerDesc(Block), LayerDesc(Head)]
        inner = PipelineLayer(blocks, num_stages=degrees["pp"], loss_fn=loss_fn)
    else:
        inner = Model()

    def whole_name(name: str) -> str:
        return f"layers.{name}" if piped else name

    if copies.rank == 0:  # the others have weights of their own seeds, until they are told
        for n, p in inner.named_parameters():
            p.set_value(part_of(weights[whole_name(n)], p, mp_rank, mp))
    kind = "momentum" if how == "2" else "adam"
    optimizer = make_optimizer(inner, kind)
    if how.startswith("group"):
        model, optimizer, _ = group_sharded_parallel(inner, optimizer, how.removeprefix("group_"))
    else:
        model = fleet.distributed_model(inner)
        optimizer = fleet.distributed_optimizer(optimizer)
    reference = make_optimizer(alone.model, kind)
    for step in range(STEPS):
        ids, labels = map(paddle.to_tensor, batch(step, copies.rank))
        if piped:
            loss = model.train_batch((ids, labels), optimizer)
        else:
            loss = loss_fn(model(ids), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        mean = loss.detach().reshape([])
        if copies.nranks > 1:
            dist.all_reduce(mean, dist.ReduceOp.AVG, copies)
        rows = [batch(step, part) for part in range(copies.nranks)]
        want = alone.loss(*[paddle.to_tensor(np.concatenate(x)) for x in zip(*rows, strict=True)])
        want.backward()
        reference.step()
        reference.clear_grad()
        np.testing.assert_allclose(mean.item(), want.item(), rtol=1e-4, err_msg=f"step {step}")
    state = model.state_dict()
    have = dict(inner.named_parameters())
    for name, p in alone.model.named_parameters():
        own = name.removeprefix("layers.") if piped else name
        if own in state:
            part = part_of(p.numpy(), have[own], mp_rank, mp)
            np.testing.assert_allclose(state[own].numpy(), part, rtol=2e-3, atol=1e-4)
    print(f"rank {me}: {STEPS} steps of {how} {rest} agree")


main()
