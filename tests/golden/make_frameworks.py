#!/usr/bin/env python3
"""Writes onnx/keras-*.onnx and onnx/jax-*.onnx, models of Keras (tf2onnx) and JAX (jax2onnx), and
frameworks.json: a batch for each, and the framework's losses in three steps of SGD and before the
first one as it is evaluated.

    make_frameworks.py keras     needs tensorflow-cpu and tf2onnx
    make_frameworks.py jax       needs jax, flax and jax2onnx

The tests need only the files.
"""

import json
import os
import sys

import numpy as np
import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
N, CLASSES, STEPS, LR = 4, 5, 3, 0.1
SHAPES = {"dense": (6,), "conv": (8, 8, 3), "lstm": (4, 3), "transformer": (5,)}


def batch(name):
    r = np.random.default_rng(len(name))
    shape = (N,) + SHAPES[name]
    tokens = name == "transformer"
    x = r.integers(0, 9, shape).astype(np.int32) if tokens else \
        r.standard_normal(shape).astype(np.float32)
    return x, r.integers(0, CLASSES, N)


def tell(name, x, y, losses, eval_loss):
    path = os.path.join(HERE, "frameworks.json")
    reported = {}
    if os.path.exists(path):
        with open(path) as file:
            reported = json.load(file)
    reported[name] = {"x": x.tolist(), "y": y.tolist(), "losses": losses, "eval_loss": eval_loss}
    with open(path, "w") as file:
        json.dump(dict(sorted(reported.items())), file)


def save(model, name):
    """Without the types of values in between, and what people read."""
    del model.graph.value_info[:]
    model.doc_string = ""
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    onnx.save(model, os.path.join(HERE, "onnx", name + ".onnx"))


# ---- Keras ----

def keras_models():
    import keras
    from keras import layers as L

    def transformer():
        i = L.Input(SHAPES["transformer"], dtype="int32")
        x = L.Embedding(9, 8)(i)
        x = L.LayerNormalization(epsilon=1e-5)(x + L.MultiHeadAttention(2, 4)(x, x))
        x = L.LayerNormalization(epsilon=1e-5)(
            x + L.Dense(8)(L.Dense(12, activation="gelu")(x)))
        return keras.Model(i, L.Dense(CLASSES)(L.GlobalAveragePooling1D()(x)))

    return {
        "dense": lambda: keras.Sequential([
            L.Input(SHAPES["dense"]), L.Dense(7, activation="relu"), L.LayerNormalization(),
            L.Dense(6, activation="gelu"), L.Dense(CLASSES)]),
        "conv": lambda: keras.Sequential([
            L.Input(SHAPES["conv"]), L.Conv2D(4, 3, padding="same", use_bias=False),
            L.BatchNormalization(), L.ReLU(), L.MaxPooling2D(),
            L.SeparableConv2D(6, 3, padding="same", activation="swish"), L.BatchNormalization(),
            L.GlobalAveragePooling2D(), L.Dense(CLASSES)]),
        "lstm": lambda: keras.Sequential([
            L.Input(SHAPES["lstm"]),
            L.Bidirectional(L.LSTM(4, return_sequences=True, use_bias=False)), L.GRU(4),
            L.Dense(CLASSES)]),
        "transformer": transformer,
    }


def make_keras():
    import keras
    import tensorflow as tf
    import tf2onnx
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for name, build in keras_models().items():
        keras.utils.set_random_seed(2)
        model = build()
        r = np.random.default_rng(3)
        for w in model.weights:  # equal tensors would become one, and zeros none
            if "variance" in w.path or "gamma" in w.path:
                w.assign(r.uniform(0.5, 1.5, w.shape))
            elif len(w.shape) == 1 or not np.any(w.numpy()):
                w.assign(r.standard_normal(w.shape) * 0.1)
        x, y = batch(name)
        spec = [tf.TensorSpec((None,) + SHAPES[name], model.inputs[0].dtype, name="x")]
        for mode in ("train", "eval") if name == "conv" else ("eval",):
            run = tf.function(lambda x: model(x, training=mode == "train"), input_signature=spec)
            proto, _ = tf2onnx.convert.from_function(run, input_signature=spec, opset=18)
            save(proto, "keras-%s%s" % (name, "-train" if mode == "train" else ""))
        eval_loss = float(loss_of(y, model(x, training=False)))
        losses = []
        for _ in range(STEPS):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            losses.append(float(loss))
            weights = model.trainable_weights
            for w, g in zip(weights, tape.gradient(loss, weights)):
                w.assign_sub(LR * tf.convert_to_tensor(g))
        tell("keras-" + name, x, y, losses, eval_loss)


# ---- JAX ----

def jax_models():
    import jax.numpy as jnp
    from flax import nnx
    from jax import lax

    class Dense(nnx.Module):
        def __init__(self, r):
            self.a, self.n = nnx.Linear(6, 7, rngs=r), nnx.LayerNorm(7, rngs=r)
            self.b = nnx.Linear(7, CLASSES, rngs=r)

        def __call__(self, x):
            return self.b(self.n(nnx.gelu(self.a(x))))

    class Conv(nnx.Module):
        def __init__(self, r):
            self.a = nnx.Conv(3, 4, (3, 3), rngs=r)
            self.n = nnx.BatchNorm(4, use_running_average=True, rngs=r)
            self.b = nnx.Conv(4, 4, (3, 3), strides=2, feature_group_count=4, rngs=r)
            self.o = nnx.Linear(4, CLASSES, rngs=r)

        def __call__(self, x):
            x = nnx.relu(self.n(self.a(x)))
            return self.o(nnx.silu(self.b(x)).mean((1, 2)))

    class Lstm(nnx.Module):
        def __init__(self, r):
            self.w = nnx.Linear(3, 16, rngs=r)
            self.u = nnx.Linear(4, 16, use_bias=False, rngs=r)
            self.o = nnx.Linear(4, CLASSES, rngs=r)

        def __call__(self, x):
            def step(state, now):
                h, c = state
                i, f, g, o = jnp.split(self.w(now) + self.u(h), 4, -1)
                c = nnx.sigmoid(f) * c + nnx.sigmoid(i) * jnp.tanh(g)
                h = nnx.sigmoid(o) * jnp.tanh(c)
                return (h, c), h
            zeros = jnp.zeros((x.shape[0], 4))
            (h, _), all_h = lax.scan(step, (zeros, zeros), jnp.swapaxes(x, 0, 1))
            return self.o(h + all_h.mean(0))

    class Transformer(nnx.Module):
        def __init__(self, r):
            self.e = nnx.Embed(9, 8, rngs=r)
            self.a = nnx.MultiHeadAttention(num_heads=2, in_features=8, qkv_features=8,
                                            decode=False, rngs=r)
            self.n, self.m = nnx.LayerNorm(8, rngs=r), nnx.RMSNorm(8, rngs=r)
            self.f, self.g = nnx.Linear(8, 12, rngs=r), nnx.Linear(12, 8, rngs=r)
            self.o = nnx.Linear(8, CLASSES, rngs=r)

        def __call__(self, x):
            x = self.e(x)
            x = x + self.a(self.n(x))
            x = lax.fori_loop(0, 2, lambda i, v: v + self.g(nnx.gelu(self.f(self.m(v)))), x)
            return self.o(x.mean(1))

    return {"dense": Dense, "conv": Conv, "lstm": Lstm, "transformer": Transformer}


def make_jax():
    import jax
    import jax.numpy as jnp
    from flax import nnx
    from jax2onnx import to_onnx
    for name, build in jax_models().items():
        model = build(nnx.Rngs(2))
        r = np.random.default_rng(3)
        state = nnx.state(model)
        leaves, tree = jax.tree_util.tree_flatten(state)
        leaves = [jnp.asarray(r.uniform(0.5, 1.5, v.shape), v.dtype)
                  if v.ndim == 1 and v.dtype == jnp.float32 else v for v in leaves]
        nnx.update(model, jax.tree_util.tree_unflatten(tree, leaves))
        model.eval()
        x, y = batch(name)
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        proto = to_onnx(model, [shape if name == "transformer" else ("B",) + SHAPES[name]],
                        model_name=name, opset=21)
        save(proto, "jax-" + name)

        def loss_of(m):
            logits = m(x)
            return (jax.nn.logsumexp(logits, 1) - logits[jnp.arange(N), y]).mean()

        eval_loss = float(loss_of(model))
        if name == "conv":  # trained on the statistics of the batch
            model.train()
            model.n.use_running_average = False
        losses = []
        for _ in range(STEPS):
            loss, grads = nnx.value_and_grad(loss_of)(model)
            losses.append(float(loss))
            params = nnx.state(model, nnx.Param)
            nnx.update(model, jax.tree_util.tree_map(lambda p, g: p - LR * g, params, grads))
        tell("jax-" + name, x, y, losses, eval_loss)


if __name__ == "__main__":
    {"keras": make_keras, "jax": make_jax}[sys.argv[1]]()
