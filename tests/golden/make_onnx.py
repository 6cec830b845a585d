#!/usr/bin/env python3
"""make_onnx.py [NAME]...: writes onnx/*.onnx: models of make_pt2.py (all, or those named), with the
weights of pt2/NAME.pt2, as PyTorch's exporters write them, so that pt2.json holds their losses too;
layers.onnx, operators of other exporters, with onnxruntime's results in onnx.json; and the seed of
the fuzz target of the reader.

Needs PyTorch, onnx and onnxruntime; the tests need only the files.  Names of source files and types
of values in between (but those of make_pt2.TYPED) are left out, which makes the files much smaller.
"""

import json
import os
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

import make_pt2

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.fx_node")
BATCH = torch.export.Dim("batch", min=1, max=4096)
# train and eval: the newer exporter, as it is and optimized; script: the older one.
FORMS = {"cnn": ("train", "script", "eval"), "tokens": ("train", "eval"), "encoder": ("script",),
         "zoo": ("script",), "frozen": ("train", "script"), "norms": ("train", "script"),
         "standardized": ("train", "script"), "taken": ("train",),
         "written": ("train",), "positions": ("train",),
         "rounded": ("train", "script")}


def save(model, path, typed=False, **more):
    for node in model.graph.node:
        kept = [(p.key, p.value) for p in node.metadata_props if p.key in KEPT]
        del node.metadata_props[:]
        for key, value in kept:
            node.metadata_props.add(key=key, value=value)
    initial = {t.name for t in model.graph.initializer}
    infos = [v for v in model.graph.value_info if typed or v.name in initial]
    del model.graph.value_info[:]
    model.graph.value_info.extend(infos)
    onnx.save(model, path, **more)


def module(name):
    """The model of make_pt2.py with the weights that it drew."""
    torch.manual_seed(3)
    return make_pt2.MODELS[name][0]()


def export(name, form):
    with open(os.path.join(HERE, "pt2.json")) as file:
        x = torch.tensor(json.load(file)[name]["x"])
    net = module(name)
    path = os.path.join(HERE, "onnx", "%s-%s.onnx" % (name, form))
    if form == "script":
        torch.onnx.export(net.train(), (x,), path, dynamo=False, opset_version=17,
                          training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                          input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "n"}})
        save(onnx.load(path), path)
        return
    program = torch.onnx.export(net.train(form == "train"), (x,), dynamo=True, input_names=["x"],
                                opset_version=18 if name == "zoo" else 23,
                                dynamic_shapes=({0: BATCH},), optimize=form == "eval",
                                verbose=False)
    save(program.model_proto, path, name in make_pt2.TYPED)


class Builder:
    """Nodes one after the other, each on the result of the one before."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.tensors, self.n = [], [], 0

    def weight(self, *shape, scale=0.5):
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32), "w")

    def constant(self, values, kind="c"):
        name = "%s%d" % (kind, len(self.tensors))
        self.tensors.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, op, *inputs, n_outputs=1, domain="", **attributes):
        outputs = ["v%d" % (self.n + i) for i in range(n_outputs)]
        self.n += n_outputs
        self.nodes.append(helper.make_node(op, list(inputs), outputs, domain=domain, **attributes))
        return outputs[0] if n_outputs == 1 else outputs


def layers():
    """What Keras, tf2onnx and JAX write: channels last turned around, pads by name, a function."""
    b = Builder(3)
    ints = lambda *v: b.constant(np.array(v, np.int64))
    x = b.node("Transpose", "x", perm=[0, 3, 1, 2])
    x = b.node("Conv", x, b.weight(6, 3, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2])
    x = b.node("Clip", b.node("Add", x, b.weight(6, 1, 1)), "", b.constant(np.float32(2)))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    x = b.node("PRelu", x, b.weight(6, 1, 1))
    up = b.node("Resize", x, "", b.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest",
                coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    x = b.node("Pad", up, ints(0, 0, 1, 0, 0, 0, 0, 1))
    x = b.node("HardSigmoid", x, alpha=0.25, beta=0.4)
    parts = b.node("Split", x, ints(2, 4), n_outputs=2, axis=1)
    deep = b.node("DepthToSpace", parts[1], blocksize=2, mode="CRD")
    deep = b.node("ConvTranspose", deep, b.weight(1, 1, 3, 3), strides=[2, 1], pads=[0, 0, 1, 2])
    pooled = b.node("GlobalAveragePool", deep)
    norm = b.node("ReduceL2", parts[0], ints(2, 3), keepdims=0)
    x = b.node("Concat", b.node("Flatten", pooled), norm, axis=1)
    x = b.node("Gemm", x, b.weight(4, 3), b.weight(4), alpha=0.5, beta=2.0, transB=1)
    # A sequence of four steps for the recurrent layers.
    x = b.node("Unsqueeze", x, ints(2))
    x = b.node("Transpose", b.node("Mul", x, b.weight(1, 1, 5)), perm=[1, 0, 2])
    y, h = b.node("LSTM", x, b.weight(2, 12, 5), b.weight(2, 12, 3), b.weight(2, 24), n_outputs=2,
                  hidden_size=3, direction="bidirectional")
    y = b.node("Reshape", b.node("Transpose", y, perm=[0, 2, 1, 3]), ints(0, 0, 6))
    z, last = b.node("GRU", y, b.weight(1, 9, 6), b.weight(1, 9, 3), b.weight(1, 18), n_outputs=2,
                     hidden_size=3, linear_before_reset=1)
    h = b.node("ReduceSum", h, ints(0), keepdims=0)
    x = b.node("Sub", b.node("Squeeze", last, ints(0)), h)
    x = b.node("Slice", x, ints(2), ints(-9), ints(1), ints(-1))
    x = b.node("Scaled", x, b.weight(3), domain="local", factor=1.5)
    x = b.node("Einsum", x, b.weight(3, 5), equation="nk,kc->nc")
    top, places = b.node("TopK", x, ints(3), n_outputs=2, axis=1)
    x = b.node("Add", x, b.node("ReduceLogSumExp", top, ints(1), keepdims=1))
    x = b.node("CumSum", x, b.constant(np.int64(1)), exclusive=1, reverse=1)
    x = b.node("ScatterElements", x, places, top, axis=1)
    places = b.node("Sub", b.node("ArgMin", x, axis=1, keepdims=0), ints(2))
    hot = b.node("OneHot", b.node("Mul", places, ints(3)), ints(5),
                 b.constant(np.array([0.5, 2], np.float32)))
    x = b.node("Mul", x, hot)
    x = b.node("Where", b.constant(np.array([True, True, False, True, True])), x,
               b.node("Softsign", x))
    b.nodes[-1].output[0] = "y"
    scaled = helper.make_function(
        "local", "Scaled", ["a", "s"], ["r"],
        [helper.make_node("Mul", ["a", "s"], ["t"]),
         helper.make_node("Celu", ["t"], ["u"]),
         helper.make_node("Constant", [], ["f"]),
         helper.make_node("Mul", ["u", "f"], ["r"])],
        [helper.make_opsetid("", 18)], ["factor"])
    reference = scaled.node[2].attribute.add()
    reference.name, reference.ref_attr_name = "value_float", "factor"
    reference.type = onnx.AttributeProto.FLOAT
    graph = helper.make_graph(
        b.nodes, "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 8, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])], b.tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18),
                                                   helper.make_opsetid("local", 1)],
                             functions=[scaled], producer_name="tests", ir_version=9)


def functions():
    """Resizing by every rule, remainders, normalizations and functions of elements."""
    b = Builder(4)
    ints = lambda *v: b.constant(np.array(v, np.int64))
    floats = lambda *v: b.constant(np.array(v, np.float32))
    image = b.node("Transpose", "x", perm=[0, 3, 1, 2])
    image = b.node("Conv", image, b.weight(4, 3, 1, 1))
    image = b.node("LRN", image, size=3, alpha=0.3, beta=0.6, bias=0.8)
    image = b.node("MeanVarianceNormalization", image)
    parts = []
    for scales, more in (
            ((1, 1, 1.7, 3), dict(mode="nearest", nearest_mode="ceil",
                                  coordinate_transformation_mode="asymmetric")),
            ((1, 1, 2, 3), dict(mode="nearest", coordinate_transformation_mode="asymmetric")),
            ((1, 1, 0.6, 1.4), dict(mode="nearest", nearest_mode="round_prefer_ceil")),
            ((1, 1, 0.6, 0.6), dict(mode="linear")),
            ((1, 1, 0.125, 2), dict(mode="linear",
                                    coordinate_transformation_mode="pytorch_half_pixel")),
            ((1, 1, 2, 0.5), dict(mode="linear", coordinate_transformation_mode="align_corners")),
            ((1, 1, 1.3, 0.7), dict(mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1)),
            ((1, 1, 0.4, 0.6), dict(mode="linear", antialias=1)),
            ((1, 1, 0.4, 0.6), dict(mode="cubic", antialias=1))):
        y = b.node("Resize", image, "", floats(*scales), **more)
        y = b.node("Mul", y, b.node("Cos", y))
        parts.append(b.node("ReduceMean", y, ints(2, 3), keepdims=0))
    grid = b.node("Tanh", b.node("Slice", "x", ints(0), ints(2), ints(3)))
    y = b.node("GridSample", image, grid, align_corners=0, mode="bilinear", padding_mode="zeros")
    parts.append(b.node("ReduceMean", y, ints(2, 3), keepdims=0))
    x = b.node("Concat", *parts, axis=1)
    x = b.node("MatMul", x, b.weight(40, 6, scale=0.3))
    mixed = b.node("Mod", x, floats(0.37), fmod=1)
    inner = b.node("Mul", b.node("Tanh", x), floats(0.9))
    for op in ("Acos", "Asin", "Atan", "Atanh", "Sinh", "Cosh", "Asinh"):
        mixed = b.node("Add", mixed, b.node(op, inner))
    mixed = b.node("Add", mixed, b.node("Acosh", b.node("Add", b.node("Abs", x), floats(1.5))))
    huge = b.node("Mul", b.node("ThresholdedRelu", x, alpha=0.2), floats(3e38))
    mixed = b.node("Add", mixed, b.node("Cast", b.node("IsInf", b.node("Mul", huge, floats(1e10))),
                                        to=1))
    odd = b.node("IsNaN", b.node("Log", x))
    mixed = b.node("Add", mixed, b.node("Cast", odd, to=1))
    mixed = b.node("Add", b.node("Hardmax", x), b.node("LpNormalization", mixed, axis=1, p=2))
    last = b.node("ArgMax", b.node("Round", x), axis=1, keepdims=1, select_last_index=1)
    mixed = b.node("Add", mixed, b.node("Cast", last, to=1))
    total = b.node("ReduceLogSum", b.node("Exp", x), ints(1), keepdims=1)
    x = b.node("Add", mixed, total)
    windows = b.node("AveragePool", image, kernel_shape=[3, 2], strides=[2, 2], pads=[0, 0, 1, 1])
    windows = b.node("Add", windows, b.node(
        "AveragePool", image, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"))
    rows = b.node("ReduceProd", windows, ints(1), keepdims=0)
    lengths = b.node("Expand", ints(4), b.node("Slice", b.node("Shape", "x"), ints(0), ints(1)))
    turned = b.node("ReverseSequence", rows, lengths, time_axis=1, batch_axis=0)
    turned = b.node("MatMul", b.node("Reshape", turned, ints(-1, 16)), b.weight(16, 6))
    x = b.node("Add", x, b.node("Mul", turned, b.node("ReduceProd", inner, ints(1), keepdims=1)))
    b.node("MatMul", x, b.weight(6, 5))
    b.nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        b.nodes, "functions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 8, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])], b.tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                             producer_name="tests", ir_version=9)


def reference_loss(path, x, y):
    session = onnxruntime.InferenceSession(path)
    logits = session.run(None, {"x": x})[0].astype(np.float64)
    loss = np.log(np.exp(logits).sum(1)) - logits[np.arange(4), y]
    return loss.mean()


def write_layers():
    model = layers()
    onnx.checker.check_model(model)
    path = os.path.join(HERE, "onnx", "layers.onnx")
    save(model, path)
    x = np.random.default_rng(5).standard_normal((4, 8, 8, 3)).astype(np.float32)
    y = np.array([1, 0, 4, 2])
    other = os.path.join(HERE, "onnx", "functions.onnx")
    save(functions(), other)
    onnx.checker.check_model(other)
    with open(os.path.join(HERE, "onnx.json"), "w") as file:
        json.dump({"x": x.tolist(), "y": y.tolist(), "eval_loss": reference_loss(path, x, y),
                   "functions_loss": reference_loss(other, x, y)}, file)
    seed = os.path.join(HERE, "../fuzz/seeds/onnx")
    os.makedirs(seed, exist_ok=True)
    save(onnx.load(path), os.path.join(seed, "layers"))
    # The same with its tensors in a file of their own, which onnx would append to.
    data = os.path.join(HERE, "onnx", "external.data")
    if os.path.exists(data):
        os.remove(data)
    save(onnx.load(path), os.path.join(HERE, "onnx", "external.onnx"), save_as_external_data=True,
         location="external.data", size_threshold=0)


def main():
    warnings.filterwarnings("ignore")
    os.makedirs(os.path.join(HERE, "onnx"), exist_ok=True)
    for name in sys.argv[1:] or FORMS:
        for form in FORMS[name]:
            export(name, form)
    if not sys.argv[1:]:
        write_layers()


if __name__ == "__main__":
    main()
