"""Train with paddleseg's own loop. Written for Paddle; prints what it found.

In float64: with float32 Paddle's own losses leave its float64 ones by 4 % within six steps.
"""

import json
import sys

import numpy as np
import paddle
from paddleseg.core import train
from paddleseg.models import PPLiteSeg
from paddleseg.models.backbones import STDC1

# The loop ends with a count of operations, which Paddle 3.3.1 cannot do with NumPy 2.4.
paddle.flops = lambda *given, **named: 0


class Squares(paddle.io.Dataset):
    num_classes = 2
    ignore_index = 255

    def __init__(self, size, seed):
        rng = np.random.RandomState(seed)
        self.images = rng.normal(0, 0.3, (size, 3, 64, 64))
        self.labels = np.zeros((size, 64, 64), "int64")
        for image, label in zip(self.images, self.labels, strict=True):
            x, y = rng.randint(4, 40, 2)
            label[y : y + 20, x : x + 20] = 1
            image[:, y : y + 20, x : x + 20] += 1

    def __getitem__(self, index):
        return {"img": self.images[index], "label": self.labels[index], "trans_info": []}

    def __len__(self):
        return len(self.labels)


class KeptLoss(paddle.nn.CrossEntropyLoss):  # paddleseg's own does not run on Paddle 3.3.1
    def __init__(self, found):
        super().__init__(axis=1)
        self.found = found

    def forward(self, logit, label):
        loss = super().forward(logit, label.unsqueeze(1))
        self.found.append(float(loss))
        return loss


def main(folder):
    paddle.set_default_dtype("float64")
    paddle.seed(1)
    np.random.seed(1)
    model = PPLiteSeg(num_classes=2, backbone=STDC1())
    model.to(dtype="float64")
    rng = np.random.RandomState(3)
    for p in model.parameters():
        if p.ndim > 1:
            fan = max(1, int(np.prod(p.shape[1:])))
            p.set_value(rng.normal(size=p.shape) * np.sqrt(2 / fan))
    rate = paddle.optimizer.lr.PolynomialDecay(0.01, 6, end_lr=0.0, power=0.9)
    rule = paddle.optimizer.Momentum(
        rate, momentum=0.9, parameters=model.parameters(), weight_decay=4e-5
    )
    seen = []
    losses = {"types": [KeptLoss(seen) for _ in range(3)], "coef": [1, 1, 1]}
    train(
        model, Squares(12, 0), optimizer=rule, save_dir=folder, iters=6, batch_size=4,
        save_interval=6, log_iters=100, losses=losses,
    )  # fmt: skip
    model.eval()
    logits = model(paddle.to_tensor(Squares(2, 5).images))[0]
    found = {
        "losses": seen,
        "logits": logits.numpy()[:, :, ::8, ::8].reshape(-1).tolist(),
        "rate": rule.get_lr(),
    }
    print("found " + json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
