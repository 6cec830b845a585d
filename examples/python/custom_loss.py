"""A training loop of one's own with a loss that numpy computes."""

import numpy as np

import tutti

draw = np.random.default_rng(0)
x = draw.normal(size=(1000, 10)).astype(np.float32)
y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)


def hinge(outputs, inputs):
    """The mean of max(0, 1 - margin), and its gradient by the logits."""
    logits, sign = outputs["logits"], 2.0 * inputs["y"] - 1
    margin = sign * (logits[:, 1] - logits[:, 0])
    slope = np.where(margin < 1, -sign, 0) / len(sign)
    return np.maximum(0, 1 - margin).mean(), np.stack([-slope, slope], axis=1)


job = {"model": {"name": "mlp", "hidden": [32]}, "train.batch": 100, "optimizer.lr": 0.01}
with tutti.session(job, inputs={"x": (10,), "y": ((), "int32")}, n_classes=2, loss=hinge) as s:
    for epoch in range(10):
        order = draw.permutation(len(x))
        losses = [s.step(x=x[rows], y=y[rows]) for rows in order.reshape(-1, 100)]
        print("epoch %d: loss %.4f" % (epoch, np.mean(losses)))
    right = (s.forward(x=x).argmax(axis=1) == y).mean()
print("accuracy: %.3f" % right)
