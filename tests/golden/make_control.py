#!/usr/bin/env python3
"""Writes onnx/control.onnx, a model with If, Loop and Scan as JAX, Keras and PyTorch export them,
and control.json: a batch, and its losses in three steps of SGD, from onnxruntime in f64 by
finite differences.  Also a seed of the fuzz target of the reader.

Needs onnx and onnxruntime; the tests need only the files.
"""

import json
import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
N, T, C, K, LR = 4, 3, 4, 5, 0.1
F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, elem=None, shape=None):
    return helper.make_tensor_value_info(name, elem or F32, shape)


def tensor(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def graph(name, nodes, inputs, outputs, tensors=()):
    return helper.make_graph(nodes, name, inputs, outputs, list(tensors))


node = helper.make_node


def build(dtype=np.float32):
    r = np.random.default_rng(4)
    elem = F32 if dtype == np.float32 else TensorProto.DOUBLE
    f = lambda name: info(name, elem)
    row = lambda name: info(name, elem, ["n", C])
    draw = lambda *shape: (0.5 * r.standard_normal(shape)).astype(np.float32).astype(dtype)
    # A condition from the shape of the input; the other branch has an operator that nobody has.
    then = graph("then", [node("MatMul", ["x", "w_if"], ["then_y"])], [], [f("then_y")],
                 [tensor("w_if", draw(C, C))])
    rare = "Hardmax" if dtype == np.float32 else "Abs"  # onnxruntime has the first in f32 only
    other = graph("else", [node(rare, ["x"], ["else_y"])], [], [f("else_y")])
    # Branches that compute the same, and a condition of the samples.
    same = [graph("same%d" % i, [node("Tanh", ["a"], ["same_%d" % i])], [], [f("same_%d" % i)])
            for i in range(2)]
    # A loop with a weight of its own, a carried weight, and a branch inside by its number.
    inner = [graph("inner%d" % i, [node(op, ["l_h"], ["inner_%d" % i])], [], [f("inner_%d" % i)])
             for i, op in enumerate(("Sigmoid", "Tanh"))]
    loop = graph("loop", [
        node("MatMul", ["l_v", "l_w"], ["l_m"]),
        node("Add", ["l_m", "w_bias"], ["l_h"]),
        node("Equal", ["l_t", "one"], ["l_second"]),
        node("If", ["l_second"], ["l_n"], then_branch=inner[0], else_branch=inner[1]),
        node("Identity", ["l_c"], ["l_c2"]),
        node("Identity", ["l_w"], ["l_w2"]),
        node("ReduceMean", ["l_n", "axis"], ["l_out"], keepdims=0),
    ], [info("l_t", I64, []), info("l_c", BOOL, []), f("l_v"), f("l_w")],
        [info("l_c2", BOOL, []), f("l_n"), f("l_w2"), f("l_out")],
        [tensor("w_bias", draw(C)), tensor("axis", np.array([1]))])
    # A loop without a number: until its counter is 2.
    until = graph("until", [
        node("Add", ["u_n", "one"], ["u_n2"]), node("Less", ["u_n2", "two"], ["u_c2"]),
        node("Mul", ["u_v", "half"], ["u_v2"]),
    ], [info("u_t", I64, []), info("u_c", BOOL, []), info("u_n", I64, []), f("u_v")],
        [info("u_c2", BOOL, []), info("u_n2", I64, []), f("u_v2")])
    # A recurrent layer: forward over one input, backward over the other.
    scan = graph("scan", [
        node("MatMul", ["s_h", "w_rec"], ["s_a"]), node("Add", ["s_a", "s_x"], ["s_b"]),
        node("Sub", ["s_b", "s_z"], ["s_d"]), node("Tanh", ["s_d"], ["s_h2"]),
        node("Identity", ["s_h2"], ["s_y"]),
    ], [row("s_h"), row("s_x"), row("s_z")], [row("s_h2"), row("s_y")],
        [tensor("w_rec", draw(C, C))])
    nodes = [
        node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "one"], ["steps"]),
        node("Equal", ["steps", "three"], ["is_three"]),
        node("If", ["is_three"], ["a"], name="choice", then_branch=then, else_branch=other),
        node("ReduceSum", ["x"], ["total"], keepdims=0), node("Less", ["total", "zero"], ["neg"]),
        node("If", ["neg"], ["b"], then_branch=same[0], else_branch=same[1]),
        node("Loop", ["three", "", "b", "w_carried"], ["c", "w_end", "means"], name="loop",
             body=loop),
        node("Less", ["zero_i", "two"], ["begins"]),
        node("Loop", ["", "begins", "zero_i", "c"], ["count", "d"], body=until),
        node("Transpose", ["d"], ["e"], perm=[1, 0, 2]),
        node("ReduceSum", ["e", "axis_0"], ["h0"], keepdims=0),
        node("Scan", ["h0", "e", "b"], ["h", "ys"], name="scan", body=scan, num_scan_inputs=2,
             scan_input_axes=[0, 1], scan_input_directions=[0, 1], scan_output_axes=[1],
             scan_output_directions=[1]),
        node("ReduceMean", ["ys", "axis_1"], ["pooled"], keepdims=0),
        node("ReduceSum", ["means", "axes"], ["mean"], keepdims=0),
        node("Add", ["pooled", "h"], ["g"]), node("Add", ["g", "mean"], ["i"]),
        node("Gemm", ["i", "w_head"], ["y"], transB=1),
    ]
    constants = [tensor("one", np.int64(1)), tensor("two", np.int64(2)),
                 tensor("three", np.int64(T)), tensor("zero_i", np.int64(0)),
                 tensor("zero", dtype(0)), tensor("half", dtype(0.5)),
                 tensor("axis_0", np.array([0])), tensor("axis_1", np.array([1])),
                 tensor("axes", np.array([0])), tensor("w_carried", draw(C, C)),
                 tensor("w_head", draw(K, C))]
    main = graph("control", nodes, [info("x", elem, ["n", T, C])], [info("y", elem, ["n", K])],
                 constants)
    return helper.make_model(main, opset_imports=[helper.make_opsetid("", 18)],
                             producer_name="tests", ir_version=9)


def weights(g):
    """The tensors of a graph and of those inside its nodes that can be trained."""
    found = [t for t in g.initializer if t.name.startswith("w_")]
    for n in g.node:
        for a in n.attribute:
            if a.HasField("g"):
                found += weights(a.g)
    return found


def losses(x, y):
    model = build(np.float64)
    params = weights(model.graph)
    values = [numpy_helper.to_array(p).copy() for p in params]

    def loss():
        for p, v in zip(params, values):
            p.CopyFrom(numpy_helper.from_array(v, p.name))
        session = onnxruntime.InferenceSession(model.SerializeToString())
        logits = session.run(None, {"x": x})[0]
        top = logits.max(1)
        return float((np.log(np.exp(logits - top[:, None]).sum(1)) + top -
                      logits[np.arange(N), y]).mean())

    reported = []
    for _ in range(3):
        reported.append(loss())
        steps = []
        for v in values:
            grad = np.zeros_like(v)
            for i in np.ndindex(*v.shape):
                old, h, ends = v[i], 1e-5, []
                for v[i] in (old + h, old - h):
                    ends.append(loss())
                v[i], grad[i] = old, (ends[0] - ends[1]) / (2 * h)
            steps.append(LR * grad)
        for v, step in zip(values, steps):
            v -= step
    return reported


def main():
    model = build()
    onnx.checker.check_model(model)
    for path in (os.path.join(HERE, "onnx", "control.onnx"),
                 os.path.join(HERE, "../fuzz/seeds/onnx", "control")):
        onnx.save(model, path)
    x = np.random.default_rng(6).standard_normal((N, T, C)).astype(np.float32)
    y = np.array([1, 0, 4, 2])
    names = sorted(t.name for t in weights(model.graph))
    with open(os.path.join(HERE, "control.json"), "w") as file:
        json.dump({"x": x.tolist(), "y": y.tolist(), "losses": losses(x.astype(np.float64), y),
                   "names": names}, file)


if __name__ == "__main__":
    main()
