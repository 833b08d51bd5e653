"""Train a small ERNIE with paddlenlp's Trainer. Written for Paddle; prints what it found."""

import json
import sys

import numpy as np
import paddle
import paddlenlp.data
import paddlenlp.prompt  # noqa: F401
from paddlenlp.trainer import Trainer, TrainerCallback, TrainingArguments
from paddlenlp.transformers import ErnieConfig, ErnieForSequenceClassification


class Sentences(paddle.io.Dataset):
    def __init__(self, size, seed):
        rng = np.random.RandomState(seed)
        self.words = rng.randint(5, 90, (size, 10)).astype("int64")
        self.labels = (self.words > 47).mean(1) > 0.5

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": int(self.labels[index])}

    def __len__(self):
        return len(self.words)


def score(found):
    return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}


class Keep(TrainerCallback):
    def __init__(self):
        self.losses = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.losses.append(logs["loss"])


def main(folder):
    config = ErnieConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, num_labels=2,
    )  # fmt: skip
    model = ErnieForSequenceClassification(config)
    rng = np.random.RandomState(3)
    for p in model.parameters():
        if p.ndim > 1:
            p.set_value(rng.normal(0, 0.1, p.shape).astype("float32"))
    arguments = TrainingArguments(
        output_dir=folder, num_train_epochs=3, per_device_train_batch_size=8, logging_steps=1,
        learning_rate=2e-3, warmup_steps=3, save_strategy="no", disable_tqdm=True, report_to=[],
        gradient_accumulation_steps=2, max_grad_norm=1.0, device="cpu", seed=11,
    )  # fmt: skip
    keep = Keep()
    trainer = Trainer(
        model=model, criterion=paddle.nn.CrossEntropyLoss(), args=arguments,
        train_dataset=Sentences(64, 0), eval_dataset=Sentences(32, 1), callbacks=[keep],
        compute_metrics=score,
    )  # fmt: skip
    trainer.train()
    scores = trainer.evaluate()
    predicted = trainer.predict(Sentences(6, 2))
    found = {
        "losses": keep.losses,
        "loss": scores["eval_loss"],
        "accuracy": scores["eval_accuracy"],
        "predicted": np.asarray(predicted.predictions).reshape(-1).tolist(),
    }
    print("found " + json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
