#!/usr/bin/env python3
"""import_keras.py [NAME]... [--list] [--package FOLDER]

Converts Keras models to ONNX with tf2onnx, imports them, and compares outputs with TensorFlow's;
of models without batch norm also the losses of four steps of SGD, which depend on all gradients.
(LSTM of ONNX adds a bias to both products, LSTM of Keras one to their sum, so it has none here.
tf2onnx writes zeros in its place, which would be trained: tensors of zeros are frozen.)
It needs tensorflow and tf2onnx, and the Python package of a build (build/python).

A line for each model: ok with the largest relative deviations of outputs and losses from
TensorFlow's f32, beside those of TensorFlow's f32 from f64; refused with the message; or WRONG.
"""

import argparse
import os
import sys
import tempfile
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = os.path.dirname(os.path.abspath(__file__))
RATE, STEPS = 0.05, 4


def applications():
    """Networks of keras.applications: (constructor's name, image size)."""
    return {"MobileNet": 64, "MobileNetV2": 64, "MobileNetV3Small": 64, "EfficientNetB0": 64,
            "EfficientNetV2B0": 64, "DenseNet121": 64, "ResNet50": 64, "ResNet50V2": 64,
            "ConvNeXtTiny": 64, "NASNetMobile": 64, "Xception": 96, "InceptionV3": 96,
            "InceptionResNetV2": 96}


def layers():
    """Small networks by name: functions of (keras.layers, input) and the input's shape."""
    import keras
    K = keras.ops

    def attention(L, x):
        y = L.LayerNormalization()(x)
        return x + L.MultiHeadAttention(2, 8)(y, y, use_causal_mask=True)

    def cross(L, x):
        y = L.Dense(8)(x[:, :4])
        return L.MultiHeadAttention(2, 4, value_dim=6)(y, x)

    def grouped(L, x):
        return L.GroupQueryAttention(8, 4, 2)(x, x)

    def dot(L, x):
        return L.Attention(use_scale=True)([L.Dense(8)(x), L.Dense(8)(x)])

    def additive(L, x):
        return L.AdditiveAttention()([L.Dense(8)(x), L.Dense(8)(x)])

    def words(L, x):
        y = L.Embedding(20, 8)(x)
        return L.Bidirectional(L.LSTM(6, use_bias=False))(y)

    def tokens(L, x):
        y = L.Embedding(20, 8)(x)
        y = y + L.Dense(8, activation="gelu")(L.LayerNormalization(epsilon=1e-6)(y))
        return L.GlobalAveragePooling1D()(y)

    def squeeze(L, x):
        y = L.Conv2D(8, 3, padding="same", activation="swish")(x)
        z = L.GlobalAveragePooling2D(keepdims=True)(y)
        z = L.Conv2D(8, 1, activation="hard_sigmoid")(L.Conv2D(4, 1, activation="relu")(z))
        return L.GlobalMaxPooling2D()(y * z)

    def unet(L, x):
        a = L.Conv2D(4, 3, padding="same", activation="relu")(x)
        b = L.Conv2D(8, 3, strides=2, padding="same", activation="relu")(a)
        c = L.Conv2DTranspose(4, 3, strides=2, padding="same")(b)
        return L.Conv2D(3, 1)(L.Concatenate()([a, c, L.UpSampling2D(2)(b)]))

    def chain(*kinds):
        def build(L, x):
            for make in kinds:
                x = make(L)(x)
            return x
        return build

    def function(run, width=6):
        def build(L, x):
            return L.Dense(3)(run(L.Dense(width)(x)))
        return build

    image, line, flat, ids = (16, 16, 3), (12, 8), (10,), (12, "int")
    found = {
        "attention": (attention, line), "cross_attention": (cross, line), "grouped_attention":
        (grouped, line), "dot_attention": (dot, line), "additive_attention": (additive, line),
        "words_bilstm": (words, ids), "tokens": (tokens, ids), "squeeze_excite": (squeeze, image),
        "unet": (unet, image),
        "lstm": (chain(lambda L: L.LSTM(6, return_sequences=True, use_bias=False),
                       lambda L: L.LSTM(4, use_bias=False)), line),
        "gru": (chain(lambda L: L.GRU(6, return_sequences=True), lambda L: L.GRU(4)), line),
        "gru_before": (chain(lambda L: L.GRU(6, reset_after=False, use_bias=False)), line),
        "rnn": (chain(lambda L: L.SimpleRNN(6, use_bias=False)), line),
        "lstm_backwards": (chain(lambda L: L.LSTM(6, go_backwards=True, return_sequences=True,
                                                    use_bias=False)),
                           line),
        "conv_lstm": (chain(lambda L: L.ConvLSTM2D(4, 3, padding="same")), (3, 8, 8, 2)),
        "conv1d_causal": (chain(lambda L: L.Conv1D(6, 3, padding="causal", dilation_rate=2)), line),
        "conv1d_transpose": (chain(lambda L: L.Conv1DTranspose(6, 4, strides=2)), line),
        "conv3d": (chain(lambda L: L.Conv3D(4, 3, padding="same"), lambda L: L.MaxPooling3D(2)),
                   (4, 8, 8, 2)),
        "separable": (chain(lambda L: L.SeparableConv2D(8, 3, padding="same", strides=2)), image),
        "depthwise": (chain(lambda L: L.DepthwiseConv2D(3, depth_multiplier=2, padding="same"),
                            lambda L: L.Conv2D(4, 5, strides=3)), image),
        "grouped_conv": (chain(lambda L: L.Conv2D(8, 1), lambda L: L.Conv2D(8, 3, groups=4)),
                         image),
        "dilated": (chain(lambda L: L.Conv2D(4, 3, dilation_rate=2, padding="same")), image),
        "transpose": (chain(lambda L: L.Conv2DTranspose(4, 4, strides=3, padding="valid",
                                                        output_padding=1)), image),
        "same_even": (chain(lambda L: L.Conv2D(4, 4, strides=2, padding="same"),
                            lambda L: L.MaxPooling2D(3, 2, padding="same"),
                            lambda L: L.AveragePooling2D(3, 2, padding="same")), (15, 13, 3)),
        "resize": (chain(lambda L: L.Conv2D(4, 1), lambda L: L.Resizing(9, 21)), image),
        "up_bilinear": (chain(lambda L: L.Conv2D(4, 1), lambda L: L.UpSampling2D(
            3, interpolation="bilinear")), image),
        "pads": (chain(lambda L: L.Conv2D(4, 1), lambda L: L.ZeroPadding2D(((1, 0), (2, 3))),
                       lambda L: L.Cropping2D(((2, 1), (0, 2)))), image),
        "group_norm": (chain(lambda L: L.Conv2D(8, 3), lambda L: L.GroupNormalization(4)), image),
        "layer_norm_image": (chain(lambda L: L.Conv2D(8, 3), lambda L: L.LayerNormalization(
            axis=[1, 2, 3])), image),
        "rms_norm": (chain(lambda L: L.Dense(8), lambda L: L.RMSNormalization()), line),
        "unit_norm": (chain(lambda L: L.Dense(8), lambda L: L.UnitNormalization()), line),
        "prelu": (chain(lambda L: L.Conv2D(8, 3), lambda L: L.PReLU(shared_axes=[1, 2])), image),
        "einsum_dense": (chain(lambda L: L.EinsumDense("btd,dhe->bthe", (None, 2, 5),
                                                       bias_axes="he")), line),
        "local1d": (chain(lambda L: L.Permute((2, 1)), lambda L: L.Dense(5), lambda L: L.Reshape(
            (5, 8)), lambda L: L.Flatten(), lambda L: L.RepeatVector(3)), line),
        "time_distributed": (chain(lambda L: L.TimeDistributed(L.Conv2D(4, 3)), lambda L: L.Reshape(
            (3, -1))), (3, 8, 8, 2)),
        "batch_norm": (chain(lambda L: L.Conv2D(8, 3), lambda L: L.BatchNormalization(),
                             lambda L: L.ReLU(6.0)), image),
        "discretized": (chain(lambda L: L.Rescaling(0.5, -1.0), lambda L: L.Normalization(
            mean=0.3, variance=2.0), lambda L: L.Dense(3)), flat),
        "softmax_axis": (chain(lambda L: L.Dense(8), lambda L: L.Softmax(axis=1)), line),
        "maxout": (function(lambda x: K.max(K.reshape(x, (-1, 3, 2)), -1)), flat),
        "top_k": (function(lambda x: K.top_k(x, 3)[0]), flat),
        "sort": (function(lambda x: K.sort(x, -1)), flat),
        "cumsum": (function(lambda x: K.cumsum(x, -1)), flat),
        "where": (function(lambda x: K.where(x > 0.1, K.square(x), K.sin(x))), flat),
        "logsumexp": (function(lambda x: x - K.logsumexp(x, -1, keepdims=True)), flat),
        "take": (function(lambda x: K.take(x, [3, 1, 1, 0], axis=1)), flat),
        "roll": (function(lambda x: K.roll(x, 2, axis=1) * K.flip(x, 1)), flat),
        "norms": (function(lambda x: K.concatenate([K.var(x, -1, keepdims=True), K.std(
            x, -1, keepdims=True), K.norm(x, axis=-1, keepdims=True), K.prod(
                x, -1, keepdims=True)], -1)), flat),
        "pad": (function(lambda x: K.pad(x[:, :3], ((0, 0), (1, 2)))), flat),
        "einsum": (function(lambda x: K.einsum("bi,bj->bij", x, x)[:, 1]), flat),
        "erf": (function(lambda x: K.erf(x) + K.log1p(K.abs(x)) + K.expm1(x) + K.rsqrt(
            1 + x * x)), flat),
        "arctan": (function(lambda x: K.arctan2(x, 2 + K.cos(x)) + K.arcsinh(x)), flat),
        "floors": (function(lambda x: K.floor(x * 3) * x + K.sign(x) + K.round(x * 2) * x), flat),
        "one_hot": (function(lambda x: K.one_hot(K.argmax(x, -1), 6) * x), flat),
        "clip": (function(lambda x: K.clip(x, -0.3, 0.4) + K.maximum(x, 0.1)), flat),
        "mod": (function(lambda x: K.mod(x, 0.7) + K.floor_divide(x, 0.3)), flat),
    }
    for name in ("elu", "selu", "celu", "softplus", "softsign", "mish", "gelu", "relu6", "silu",
                 "leaky_relu", "hard_silu", "hard_tanh", "log_sigmoid", "exponential", "glu",
                 "tanh_shrink", "hard_shrink", "soft_shrink", "sparse_plus", "squareplus",
                 "log_softmax", "threshold"):
        run = getattr(keras.activations, name)
        extra = (0.1, 0.0) if name == "threshold" else ()
        found["act_" + name] = (function(lambda x, run=run, extra=extra: run(x, *extra)), flat)
    return found


def build(name, precision):
    """The model with weights that do not depend on the precision."""
    import keras
    keras.backend.clear_session()
    keras.backend.set_floatx(precision)
    if name in applications():
        size = applications()[name]
        model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3),
                                                  classes=10)
    else:
        make, shape = layers()[name]
        if shape[-1] == "int":
            x = keras.Input(shape[:-1], dtype="int32")
        else:
            x = keras.Input(shape)
        model = keras.Model(x, make(keras.layers, x))
    return model


def make_case(name, path):
    """Inputs, TensorFlow's outputs and losses in both precisions, and the file."""
    import keras
    import numpy
    import tensorflow
    import tf2onnx
    draw = numpy.random.default_rng(5)
    made, values = {}, None
    for precision in ("float32", "float64"):
        model = build(name, precision)
        if values is None:
            shape = (4, *model.inputs[0].shape[1:])
            made["x"] = (draw.integers(0, 20, shape).astype("int32")
                         if "int" in model.inputs[0].dtype else
                         draw.standard_normal(shape).astype("float32"))
            values = []
            for w in model.get_weights():
                noise = draw.standard_normal(w.shape)
                values.append(w + 0.05 * (numpy.abs(noise) if w.ndim == 1 else noise))
        model.set_weights([v.astype(precision) if w.dtype.kind == "f" else w
                           for v, w in zip(values, model.get_weights())])
        x = made["x"] if made["x"].dtype.kind == "i" else made["x"].astype(precision)
        if precision == "float32":
            signature = [tensorflow.TensorSpec((None, *x.shape[1:]), x.dtype, name="x")]
            run = tensorflow.function(lambda x: model(x, training=False), signature)
            tf2onnx.convert.from_function(run, signature, opset=17, output_path=path)
        out = numpy.asarray(model(x, training=False))
        made.setdefault("weights", draw.standard_normal(out.shape) / out[0].size)
        made[precision] = [out.astype("float64")]
        made["norms"] = any(isinstance(m, keras.layers.BatchNormalization)
                            for m in model._flatten_layers())
        if made["norms"]:
            continue
        losses, trained = [], model.trainable_variables
        for _ in range(STEPS):
            with tensorflow.GradientTape() as tape:
                out = model(x, training=False)
                loss = tensorflow.reduce_sum(out * made["weights"].astype(precision))
            losses.append(float(loss))
            for v, g in zip(trained, tape.gradient(loss, trained)):
                if g is not None:
                    v.assign_sub(RATE * tensorflow.convert_to_tensor(g))
        made[precision].append(numpy.array(losses))
    return made


def imported(tutti, path, made):
    x = made["x"]
    job = {"model.file": path, "model.loss": "none", "train.batch": len(x), "parallel.shards": 1,
           "optimizer.name": "sgd", "optimizer.lr": RATE, "optimizer.momentum": 0,
           "optimizer.weight_decay": 0, "schedule.name": "constant", "schedule.warmup_steps": 0}
    losses = []

    def loss(outputs, _):
        (name, value), = outputs.items()
        losses.append(float((value.astype("float64") * made["weights"]).sum()))
        # The loss of a session is the mean over the samples of what is returned.
        return losses[-1], {name: made["weights"].astype("float32")}

    import numpy
    kinds = {"x": (x.shape[1:], str(x.dtype))}
    with tutti.session(job, inputs=kinds, workers=1, loss=loss) as s:
        zeros = [n for n in s.parameters if not numpy.any(s.parameters[n])]
    if zeros:
        job["optimizer.freeze"] = zeros
    with tutti.session(job, inputs=kinds, workers=1, loss=loss) as s:
        out = s.forward(x=x)
        result = [next(iter(out.values())) if isinstance(out, dict) else out]
        if not made["norms"]:
            for _ in range(STEPS):
                s.step(x=x)
            result.append(numpy.array(losses[-STEPS:]))
    return result


def run_case(name, package, folder):
    import numpy
    path = os.path.join(folder, name + ".onnx")
    try:
        made = make_case(name, path)
    except Exception as e:
        return "unexported", "%s: %s" % (type(e).__name__, str(e).strip().split("\n")[0][:150])
    sys.path.insert(0, package)
    import tutti
    try:
        got = imported(tutti, path, made)
    except tutti.Error as e:
        return "refused", " ".join(str(e).split()).replace(path, "FILE")
    texts, verdict = [], "ok"
    for what, x, y, z in zip(("out", "losses"), got, made["float32"], made["float64"]):
        if x.shape != y.shape:
            return "WRONG", "%s: shape %s instead of %s" % (what, x.shape, y.shape)
        scale = max(numpy.abs(y).max(), 1e-6)
        own = min(numpy.abs(x - y).max(), numpy.abs(x - z).max()) / scale
        theirs = numpy.abs(y - z).max() / scale
        texts.append("%s %.0e (%.0e)" % (what, own, theirs))
        if not own <= max(1e-5, 10 * theirs):
            verdict = "WRONG"
    return verdict, " ".join(texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--loud", action="store_true", help="shows what TensorFlow prints")
    parser.add_argument("--keep", help="a folder that keeps the converted models")
    parser.add_argument("--package", default=os.path.join(HERE, "..", "build", "python"))
    args = parser.parse_args()
    names = args.names or list(layers()) + list(applications())
    if args.list:
        print("\n".join(names))
        return 0
    counts = {}
    if not args.loud:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with tempfile.TemporaryDirectory() as work:
        for name in names:
            try:
                verdict, text = run_case(name, args.package, args.keep or work)
            except Exception as e:
                traceback.print_exc()
                verdict, text = "BROKEN", "%s: %s" % (type(e).__name__, str(e)[:200])
            counts.setdefault(verdict, []).append(name)
            print("%-10s %-20s %s" % (verdict, name, text), flush=True)
    print(", ".join("%d %s" % (len(v), k) for k, v in sorted(counts.items())))
    return 1 if "WRONG" in counts or "BROKEN" in counts else 0


if __name__ == "__main__":
    sys.exit(main())
