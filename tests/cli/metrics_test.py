"""metrics_test.py - metrics of an evaluation: scikit-learn's figures, the same bits for any number
of workers, for models of any kind, and in `tutti eval` as in training."""

import json
import os
import sys

import fields_test as fields
import plugin_test as plugin
import runs


def golden():
    with open(os.path.join(fields.GOLDEN, "metrics.json")) as file:
        return json.load(file)


def job(case, run, *more):
    of = golden()["cases"][case]
    data = "data-" + case
    if not os.path.exists(data):
        x = golden()["inputs"]["maps" if of["model"] == "pixels" else "flat"]
        fields.save(data, fields.both({"x": x, "y": of["y"]}))
    name = of["model"] if of["model"] == "counted" else "interface_" + of["model"]
    return ["train", "model.file=%s/pt2/%s.pt2" % (fields.GOLDEN, name), "data.format=npy",
            "data.dir=" + data, "data.fields=all", "data.label=y", "train.batch=8",
            "train.steps=1", "parallel.shards=4", "optimizer.name=sgd", "optimizer.lr=1e-12",
            "optimizer.momentum=0", "optimizer.weight_decay=0", "schedule.name=constant",
            "schedule.warmup_steps=0", "train.precision=f32", "run.dir=" + run, *of["keys"], *more]


def evaluation(run):
    return fields.events(run, "eval")[-1]


def shown(run):
    return json.loads(runs.tutti("eval", run, "--json").expect(0).out)


def near(found, wanted, case):
    assert list(found) and set(found) == set(wanted), (case, found, wanted)
    for name, value in wanted.items():
        assert abs(found[name] - value) <= 2e-6 * max(1, abs(value)), (case, name, found, wanted)


def test_figures_are_those_of_scikit_learn():
    """23 samples in batches of 8: the last one has padding."""
    for case, of in golden()["cases"].items():
        runs.tutti(*job(case, case)).expect(0)
        near(evaluation(case)["metrics"], of["metrics"], case)
        reported = shown(case)
        assert reported["metrics"] == evaluation(case)["metrics"], (case, reported)
        for name, each in reported["metrics_each"].items():
            known = [x for x in each if x is not None]
            assert abs(sum(known) / len(known) - reported["metrics"][name]) < 1e-12, reported
        text = runs.tutti("eval", case).expect(0).out
        for name in of["metrics"]:
            assert "\n" + name in text, text


def test_the_bits_do_not_depend_on_the_workers():
    program = runs.PROGRAM
    for case in golden()["cases"]:
        runs.tutti(*job(case, case + "-one", "-n", "1")).expect(0)
        wanted = evaluation(case + "-one")["metrics"]
        for i, more in enumerate((["-n", "2"], ["-n", "4", "parallel.place=processes"],
                                  ["-n", "2", "parallel.zero=3"])):
            runs.tutti(*job(case, "%s-%d" % (case, i), *more)).expect(0)
            assert evaluation("%s-%d" % (case, i))["metrics"] == wanted, (case, more)
        runs.PROGRAM = runs.program_with("device")
        for n in ("1", "2"):
            runs.tutti(*job(case, "%s-device-%s" % (case, n), "parallel.devices=gpu", "-n", n),
                       env=dict(os.environ, TUTTI_TEST_DEVICE="")).expect(0)
            assert evaluation("%s-device-%s" % (case, n))["metrics"] == wanted, (case, n)
        runs.PROGRAM = program


def test_divided_models_have_the_same_metrics():
    """In stages, only the last one has the outputs; in tensor shards, all workers have them."""
    common = ["train", "model.name=mlp", "model.hidden=[16,16]", "data.n_train=64",
              "data.n_test=40", "train.batch=16", "train.steps=2", "parallel.shards=4",
              "train.metrics=top3, miou", "train.precision=f32", "optimizer.name=sgd"]
    runs.tutti(*common, "run.dir=whole").expect(0)
    wanted = evaluation("whole")["metrics"]
    for i, more in enumerate((["parallel.pipeline=2", "-n", "2"],
                              ["parallel.pipeline=2", "-n", "4"],
                              ["parallel.tensor=2", "-n", "2", "parallel.mode=fast"])):
        runs.tutti(*common, *more, "run.dir=divided-%d" % i).expect(0)
        found = evaluation("divided-%d" % i)["metrics"]
        if i < 2:
            assert found == wanted, (more, found, wanted)
        else:
            near(found, wanted, more)
    assert shown("whole")["metrics"] == wanted
    program, runs.PROGRAM = runs.PROGRAM, runs.program_with("device")
    try:
        for n in ("2", "4"):
            runs.tutti(*common, "parallel.pipeline=2", "parallel.devices=gpu", "-n", n,
                       "run.dir=stages-" + n).expect(0)
            assert evaluation("stages-" + n)["metrics"] == wanted, n
    finally:
        runs.PROGRAM = program


def test_built_in_models():
    runs.tutti("train", "model.name=mlp", "data.n_train=64", "data.n_test=40", "train.batch=16",
               "train.steps=2", "parallel.shards=2", "run.dir=plain").expect(0)
    assert "metrics" not in evaluation("plain")
    result = runs.tutti("train", "model.name=mlp", "data.n_train=64", "data.n_test=40",
                        "train.batch=16", "train.steps=2", "parallel.shards=2",
                        "train.metrics=accuracy, top1, class_accuracy, perplexity",
                        "run.dir=more").expect(0, "class_accuracy", "perplexity")
    last = evaluation("more")
    assert last["metrics"]["top1"] == last["accuracy"], (last, result.err)
    reported = shown("more")
    recalls = [c["recall"] for c in reported["classes"] if c["samples"] > 0]
    assert abs(sum(recalls) / len(recalls) - reported["metrics"]["class_accuracy"]) < 1e-12


OWN_METRIC = """
#include <tutti/tutti.h>

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params);

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params) {
    (void)params;
    tutti_value *y = tutti_linear(g, x, 3, "body"), *goal = tutti_find_field(g, "y");
    tutti_loss loss = tutti_loss_named(g, "mse", y, goal, tutti_find_present(g), NULL);
    tutti_set_loss(g, loss);
    tutti_add_metric(g, "squares", loss.sum, loss.count);
    tutti_add_metric_named(g, "r2", y, goal, tutti_find_present(g), NULL);
    return y;
}
"""


def test_a_plugin_has_metrics():
    with open("own_metric.c", "w") as file:
        file.write(OWN_METRIC)
    plugin.build("own_metric.c", "own_metric.so")
    args = [a for a in job("values", "plugin") if not a.startswith(("model.file", "train.loss"))]
    runs.tutti(*args, "model.plugin=./own_metric.so").expect(0)
    last = evaluation("plugin")
    assert set(last["metrics"]) == {"squares", "r2"}, last
    assert abs(last["metrics"]["squares"] - last["loss"]) < 1e-9 * last["loss"], last


# The logits, and the values, are the four numbers of x; the layer is only there to be trained.
NAMED_METRICS = """
#include <tutti/tutti.h>

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params);

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params) {
    static const char *const of_classes[] = {"accuracy", "top2", "top3", "class_accuracy", "miou",
                                             "perplexity"};
    static const char *const of_values[] = {"mae", "rmse", "r2"};
    tutti_value *y = tutti_add(g, x, tutti_affine(g, tutti_linear(g, x, 4, "body"), 0, 0));
    tutti_value *label = tutti_find_field(g, "label"), *goal = tutti_find_field(g, "goal");
    tutti_value *present = tutti_find_present(g);
    (void)params;
    tutti_set_loss(g, tutti_loss_named(g, "cross_entropy", y, label, present, NULL));
    for (int i = 0; i < 6; i++)
        tutti_add_metric_named(g, of_classes[i], y, label, present, NULL);
    for (int i = 0; i < 3; i++) tutti_add_metric_named(g, of_values[i], y, goal, present, NULL);
    tutti_add_metric_named(g, "auc", y, tutti_find_field(g, "question"), present, NULL);
    return y;
}
"""


def test_a_plugin_has_the_figures_of_scikit_learn():
    """All metrics by name, of 23 samples in batches of 8."""
    with open("named_metrics.c", "w") as file:
        file.write(NAMED_METRICS)
    plugin.build("named_metrics.c", "named_metrics.so")
    named = golden()["named"]
    fields.save("data-named", fields.both({"x": golden()["inputs"]["flat"], **named["y"]}))
    args = [a for a in job("values", "named")
            if not a.startswith(("model.file", "train.loss", "data.label", "data.dir", "run.dir"))]
    for workers in ("1", "2"):
        run = "named-" + workers
        runs.tutti(*args, "model.plugin=./named_metrics.so", "data.dir=data-named",
                   "run.dir=" + run, "-n", workers).expect(0)
        near(evaluation(run)["metrics"], named["metrics"], "named")


# Counts the samples that are there; of a batch with padding fewer than it has rows.
COUNTED_SAMPLES = """
#include <tutti/tutti.h>

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params);

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params) {
    tutti_value *one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    tutti_value *there = tutti_cast(g, tutti_find_present(g), TUTTI_F32);
    (void)params;
    there = tutti_minimum(g, tutti_abs(g, tutti_affine(g, there, 1, 1)), one);
    tutti_add_metric(g, "samples", tutti_sum(g, there, NULL), one);
    tutti_shape shape = tutti_value_type(x).shape;
    tutti_embedding_desc desc = {.n_rows = 50, .n_out = 50};
    if (tutti_value_type(x).dtype == TUTTI_I32) return tutti_embedding(g, x, &desc, "body");
    x = tutti_reshape(g, x, &TUTTI_SHAPE(shape.dim[0], -1));
    return tutti_linear(g, x, 10, "body");
}
"""


def test_samples_are_present_whatever_their_labels():
    """Mixed samples have three labels each, texts one for each token."""
    with open("counted_samples.c", "w") as file:
        file.write(COUNTED_SAMPLES)
    plugin.build("counted_samples.c", "counted_samples.so")
    kinds = {"plain": ["data.n_train=20", "data.n_test=20"],
             "mixed": ["data.n_train=20", "data.n_test=20", "data.mixup=0.4"],
             "tokens": ["data.format=random_tokens", "data.vocabulary=50", "data.context=6",
                        "data.n_train=20", "data.n_test=20", "run.text_samples=0"]}
    for kind, more in kinds.items():
        for workers in ("1", "2"):
            run = "%s-%s" % (kind, workers)
            runs.tutti("train", "model.plugin=./counted_samples.so", *more, "train.batch=16",
                       "train.epochs=1", "parallel.shards=2", "run.log_every=1",
                       "run.dir=" + run, "-n", workers).expect(0)
            counts = [metrics["samples"] for _, metrics in steps(run)]
            # a metric is sum / count: 16 samples, then 4, in two shards that count 1 each
            assert counts == [8, 2], (run, counts)
    with open("own_metric.c", "w") as file:
        file.write(OWN_METRIC)
    plugin.build("own_metric.c", "own_metric.so")
    result = runs.tutti("train", "model.plugin=./own_metric.so", "data.n_train=20",
                        "data.n_test=20", "train.batch=16", "train.steps=1", "parallel.shards=2",
                        "data.mixup=0.4", "run.dir=refused")
    assert result.code == 2 and "data.mixup: the model reads the labels y" in result.err, result.err


# The metrics: the mean of x, made before any layer; the mean square of the first layer; the spread
# of a shard's outputs, which joins its samples; and the loss.
STEP_METRICS = """
#include <tutti/tutti.h>

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params);

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params) {
    (void)params;
    tutti_value *goal = tutti_find_field(g, "y"), *present = tutti_find_present(g);
    tutti_value *one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    tutti_value *there = tutti_affine(g, tutti_cast(g, present, TUTTI_F32), 1, 1);
    there = tutti_minimum(g, tutti_abs(g, there), one);
    tutti_value *rows = tutti_sum(g, there, NULL);
    tutti_value *each = tutti_sum(g, x, &(tutti_axes){.n = 1, .axis = {1}});
    tutti_value *all = tutti_sum(g, tutti_keep(g, each, there), NULL);
    tutti_add_metric(g, "mean_x", all, tutti_affine(g, rows, 4, 0));
    tutti_value *h = tutti_tanh(g, tutti_linear(g, x, 8, "first"));
    tutti_add_metric(g, "square", tutti_sum(g, tutti_mul(g, h, h), NULL), rows);
    h = tutti_tanh(g, tutti_linear(g, h, 8, "second"));
    tutti_value *y = tutti_linear(g, h, 3, "body");
    tutti_value *top = tutti_max(g, y, NULL);
    tutti_add_metric(g, "peak", top, one);
    tutti_loss loss = tutti_loss_named(g, "mse", y, goal, present, NULL);
    loss.count = tutti_affine(g, rows, 3, 0); /* of an early stage */
    tutti_set_loss(g, loss);
    tutti_add_metric(g, "squares", loss.sum, loss.count);
    return y;
}
"""

LAYOUTS = (["-n", "2"], ["-n", "4"], ["-n", "2", "parallel.place=processes"],
           ["-n", "4", "parallel.place=processes"], ["-n", "2", "parallel.zero=1"],
           ["-n", "2", "parallel.zero=2"], ["-n", "4", "parallel.zero=3"],
           ["-n", "2", "parallel.pipeline=2"], ["-n", "4", "parallel.pipeline=2"],
           ["-n", "4", "parallel.pipeline=2", "parallel.zero=1", "parallel.place=processes"],
           ["-n", "2", "parallel.sync=parameter-server"],
           ["-n", "2", "parallel.sync=parameter-server", "parallel.place=processes"])
DEVICE_LAYOUTS = (["-n", "1"], ["-n", "2"], ["-n", "4"], ["-n", "2", "parallel.zero=1"],
                  ["-n", "2", "parallel.zero=3"], ["-n", "2", "parallel.pipeline=2"],
                  ["-n", "4", "parallel.pipeline=2"], ["-n", "1", "parallel.offload=optimizer"],
                  ["-n", "2", "parallel.sync=parameter-server"])


def steps(run):
    return [(e["loss"], e["metrics"]) for e in fields.events(run, "step")]


def test_own_metrics_are_in_the_records_of_steps():
    """One batch has all samples, so the mean of x is known; every layout has the same bits."""
    with open("step_metrics.c", "w") as file:
        file.write(STEP_METRICS)
    plugin.build("step_metrics.c", "step_metrics.so")
    args = [a for a in job("values", "own")
            if not a.startswith(("model.file", "train.loss", "train.batch", "train.steps",
                                 "run.dir", "optimizer.lr"))]
    args += ["model.plugin=./step_metrics.so", "train.batch=23", "train.steps=3",
             "optimizer.lr=0.1", "run.log_every=1"]
    shown_in = runs.tutti(*args, "run.dir=own", "-n", "1").expect(0).err
    wanted = steps("own")
    x = fields.flat(golden()["inputs"]["flat"])
    assert len(wanted) == 3 and wanted[0][1]["square"] != wanted[2][1]["square"], wanted
    assert "  squares " in shown_in, shown_in
    for loss, metrics in wanted:
        assert list(metrics) == ["mean_x", "square", "peak", "squares"], metrics
        assert abs(metrics["mean_x"] - sum(x) / len(x)) < 1e-6, metrics
        assert metrics["squares"] == loss, (metrics, loss)
    assert set(evaluation("own")["metrics"]) == set(wanted[0][1])
    for i, more in enumerate(LAYOUTS):
        runs.tutti(*args, *more, "run.dir=own-%d" % i).expect(0)
        assert steps("own-%d" % i) == wanted, (more, steps("own-%d" % i), wanted)
    program, runs.PROGRAM = runs.PROGRAM, runs.program_with("device")
    try:
        for i, more in enumerate(DEVICE_LAYOUTS):
            runs.tutti(*args, *more, "parallel.devices=gpu", "run.dir=own-gpu-%d" % i).expect(0)
            assert steps("own-gpu-%d" % i) == wanted, (more, steps("own-gpu-%d" % i), wanted)
    finally:
        runs.PROGRAM = program


def test_metrics_of_a_model_file_are_in_the_records_of_steps():
    """The data of training are those of the evaluation, and all are in one batch."""
    args = [a for a in job("counted", "file") if not a.startswith("train.batch")]
    runs.tutti(*args, "train.batch=24").expect(0)
    (_, metrics), = steps("file")
    evaluated = evaluation("file")["metrics"]
    near(metrics, {name: evaluated[name] for name in ("hits", "margin")}, "counted")
    for i, more in enumerate((["-n", "2"], ["-n", "4", "parallel.zero=3"])):
        runs.tutti(*args, "train.batch=24", *more, "run.dir=file-%d" % i).expect(0)
        assert steps("file-%d" % i) == steps("file"), more


def test_an_exported_file_counts_no_rows():
    """It accepts any number of rows, also where a metric has a constant for each of them; outputs
    that need labels, or are the number of rows, are left out."""
    for run, left_out in (("metrics", ()), ("outputs", ("model.metrics", "train.metrics"))):
        args = [a for a in job("counted", run) if not a.startswith(("train.batch", *left_out))]
        args += ["model.loss=none"] if left_out else []
        runs.tutti(*args, "train.batch=24").expect(0)
        runs.tutti("export", run, "--format", "onnx", "--out", run + ".onnx").expect(0)
        listed = runs.tutti("inspect", run + ".onnx").expect(0).out
        names = ["output_0", "output_3"] if left_out else ["logits"]
        assert "  x  float32[N,4]\noutputs: %d\n  %s\n" % (
            len(names), "\n  ".join(names)) in listed, listed


def test_an_onnx_file_has_the_metrics_of_the_pt2_file():
    """Outputs by number and by name; in steps, the evaluation, the terminal and `tutti eval`."""
    args = [a for a in job("counted", "onnx") if not a.startswith(("model.", "train.batch"))]
    args += ["model.file=%s/onnx/counted.onnx" % fields.GOLDEN, "train.batch=24"]
    wanted = golden()["cases"]["counted"]["metrics"]
    for run, metrics in (("onnx", "hits=1/2, margin=3"),
                         ("named", "hits=sum_1/sum_2, margin=abs_1")):
        shown_in = runs.tutti(*args, "model.metrics=" + metrics, "run.dir=" + run).expect(0).err
        assert "hits 0." in shown_in and "margin " in shown_in, shown_in
        near(evaluation(run)["metrics"], wanted, run)
        (_, of_step), = steps(run)
        near(of_step, {name: wanted[name] for name in ("hits", "margin")}, run)
        assert shown(run)["metrics"] == evaluation(run)["metrics"]


def test_what_cannot_be_measured_is_refused():
    for case, more, text in (
            ("classes", ["train.metrics=top5, mad"], "no metric has this name"),
            ("classes", ["train.metrics=auc"], "auc needs two classes"),
            ("classes", ["train.metrics=rmse"], "both must have one shape"),
            ("values", ["train.metrics=perplexity"], "perplexity needs train.loss=cross-entropy"),
            ("counted", ["model.metrics=hits=9"], "'hits=9' is not NAME=OUTPUT"),
            ("counted", ["model.metrics=hits"], "'hits' is not NAME=OUTPUT"),
            ("classes", ["parallel.sync=parameter-server", "parallel.staleness=2",
                         "parallel.mode=fast", "-n", "2"], "evaluate batches of their own")):
        runs.tutti(*job(case, "refused", *more)).expect(2, text)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
