"""Trains a multilayer perceptron on numpy arrays, and predicts with it."""

import numpy as np

import tutti

draw = np.random.default_rng(0)
x = draw.normal(size=(2000, 20)).astype(np.float32)
y = (x[:, :5].sum(axis=1) > 0).astype(np.int64)  # two classes

model = tutti.Model("mlp", {"model.hidden": [64], "optimizer.lr": 0.01})
model.fit(x[:1500], y[:1500], batch=100, epochs=5, validation=(x[1500:], y[1500:]))

print("accuracy on the held-out samples:", model.run.result.accuracy)
print("loss of each evaluation:", model.history.eval["loss"].round(3))
print("probabilities:", model.predict_proba(x[:2]).round(3))
