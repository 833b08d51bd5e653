"""Fine-tune a small BERT with paddlenlp's own parts. Written for Paddle; prints what it found."""

import json
import sys
from functools import partial

import numpy as np
import paddle
from paddle.io import BatchSampler, DataLoader
from paddlenlp.data import Dict, Pad, Stack
from paddlenlp.transformers import (
    BertConfig,
    BertForSequenceClassification,
    LinearDecayWithWarmup,
)


def sentences(size, seed):
    rng = np.random.RandomState(seed)
    for _ in range(size):
        words = rng.randint(5, 90, rng.randint(4, 12))
        yield {"input_ids": words.tolist(), "label": int((words > 47).mean() > 0.5)}


class Sentences(paddle.io.Dataset):
    def __init__(self, size, seed):
        self.rows = list(sentences(size, seed))

    def __getitem__(self, index):
        return self.rows[index]

    def __len__(self):
        return len(self.rows)


def collate(samples, pad):
    fields = {"input_ids": Pad(axis=0, pad_val=pad), "label": Stack(dtype="int64")}
    return Dict(fields)(samples)


@paddle.no_grad()
def evaluate(model, loader):
    model.eval()
    metric = paddle.metric.Accuracy()
    for ids, labels in loader:
        metric.update(metric.compute(model(ids), labels))
    model.train()
    return float(metric.accumulate())


def main(folder):
    paddle.seed(5)
    np.random.seed(5)
    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, num_labels=2,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    rng = np.random.RandomState(3)
    for p in model.parameters():
        if p.ndim > 1:
            p.set_value(rng.normal(0, 0.1, p.shape).astype("float32"))
    train, held_out = Sentences(64, 0), Sentences(32, 1)
    gather = partial(collate, pad=config.pad_token_id)
    batches = BatchSampler(train, batch_size=8, shuffle=True)
    loader = DataLoader(train, batch_sampler=batches, collate_fn=gather)
    test_loader = DataLoader(held_out, batch_size=16, collate_fn=gather)
    steps = 4 * len(loader)
    rate = LinearDecayWithWarmup(2e-3, steps, 0.1)
    decayed = [n for n, p in model.named_parameters() if not any(w in n for w in ("bias", "norm"))]
    names = [p.name for n, p in model.named_parameters() if n in decayed]
    adam = paddle.optimizer.AdamW(
        learning_rate=rate, parameters=model.parameters(), weight_decay=0.01,
        apply_decay_param_fun=lambda name: name in names,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0),
    )  # fmt: skip
    criterion = paddle.nn.CrossEntropyLoss()
    losses, accuracy = [], []
    for _ in range(4):
        for ids, labels in loader:
            with paddle.amp.auto_cast(False):
                loss = criterion(model(ids), labels)
            loss.backward()
            adam.step()
            rate.step()
            adam.clear_grad()
            losses.append(loss.item())
        accuracy.append(evaluate(model, test_loader))
    model.save_pretrained(folder)
    again = BertForSequenceClassification.from_pretrained(folder)
    again.eval()
    logits = again(paddle.to_tensor([[7, 60, 80, 3, 12]]))
    found = {
        "losses": losses,
        "accuracy": accuracy,
        "logits": logits.numpy().reshape(-1).tolist(),
        "rate": adam.get_lr(),
    }
    print("found " + json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
