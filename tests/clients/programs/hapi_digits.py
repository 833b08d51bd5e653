"""Train, save and predict with paddle.Model. Written for Paddle; prints what it found."""

import json
import sys

import numpy as np
import paddle
from paddle import nn
from paddle.io import Dataset
from paddle.metric import Accuracy


class Stripes(Dataset):
    """Pictures with bright columns or rows, the class being which ones."""

    def __init__(self, size, seed):
        rng = np.random.RandomState(seed)
        self.labels = rng.randint(0, 4, (size, 1)).astype("int64")
        self.images = rng.normal(0, 0.3, (size, 1, 16, 16)).astype("float32")
        for image, (label,) in zip(self.images, self.labels, strict=True):
            place = 3 if label % 2 else 11
            image[0, place if label < 2 else slice(None), place if label > 1 else slice(None)] += 2

    def __getitem__(self, index):
        return self.images[index], self.labels[index]

    def __len__(self):
        return len(self.labels)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2D(1, 6, 3, padding=1, bias_attr=False),
            nn.BatchNorm2D(6),
            nn.ReLU(),
            nn.MaxPool2D(2, 2),
            nn.Conv2D(6, 12, 5),
            nn.GELU(),
            nn.AdaptiveAvgPool2D(2),
        )
        self.head = nn.Linear(48, 4)

    def forward(self, x):
        return self.head(paddle.flatten(self.features(x), 1))


class Keep(paddle.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, step, logs=None):
        self.losses.append(float(np.asarray(logs["loss"]).reshape(-1)[0]))


def main(folder):
    paddle.seed(1)
    np.random.seed(1)
    net = Net()
    rng = np.random.RandomState(3)
    for p in net.parameters():
        if p.ndim > 1:
            p.set_value(rng.normal(0, 0.2, p.shape).astype("float32"))
    model = paddle.Model(net)
    rate = paddle.optimizer.lr.CosineAnnealingDecay(0.01, T_max=24)
    adam = paddle.optimizer.AdamW(
        rate, parameters=net.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1.0)
    )
    model.prepare(adam, nn.CrossEntropyLoss(), Accuracy(topk=(1, 2)))
    keep = Keep()
    stop = paddle.callbacks.EarlyStopping("loss", patience=3, verbose=0, save_best_model=False)
    model.fit(
        Stripes(96, 0), Stripes(40, 1), batch_size=16, epochs=4, verbose=0, shuffle=True,
        callbacks=[keep, stop], save_dir=folder, save_freq=2,
    )  # fmt: skip
    scores = model.evaluate(Stripes(40, 2), batch_size=20, verbose=0)
    model.save(f"{folder}/best")
    other = paddle.Model(Net())
    other.prepare(paddle.optimizer.SGD(parameters=other.parameters()), nn.CrossEntropyLoss())
    other.load(f"{folder}/best", reset_optimizer=True)
    predicted = other.predict(Stripes(8, 4), batch_size=4, stack_outputs=True, verbose=0)[0]
    size = paddle.summary(net, (1, 1, 16, 16))
    found = {
        "losses": keep.losses,
        "loss": float(np.asarray(scores["loss"]).reshape(-1)[0]),
        "accuracy": [float(scores["acc_top1"]), float(scores["acc_top2"])],
        "predicted": np.asarray(predicted).reshape(-1).tolist(),
        "rate": adam.get_lr(),
        "parameters": int(size["total_params"]),
    }
    print("found " + json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
