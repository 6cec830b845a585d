"""contrastive_test.py - losses that compare each sample with those of all shards: PyTorch's losses
of the whole batch, whatever the number of shards, and the same bits for any number of workers, as
threads and processes, on the host and on devices; also with padding, and from a plugin."""

import json
import os
import sys

import fields_test as fields
import plugin_test as plugin
import runs

DATA = "data-contrastive"


def golden():
    with open(os.path.join(fields.GOLDEN, "contrastive.json")) as file:
        return json.load(file)


def job(case, run, *more, data=DATA):
    if not os.path.exists(data):
        fields.save(data, fields.both(golden()["inputs"]))
    of = golden()["cases"][case]
    name = "interface_towers" if of["model"] == "towers" else of["model"]
    return ["train", "model.file=%s/pt2/%s.pt2" % (fields.GOLDEN, name), "data.format=npy",
            "data.dir=" + data, "train.batch=16", "train.steps=4", "parallel.shards=4",
            "optimizer.name=sgd", "optimizer.lr=0.1", "optimizer.momentum=0",
            "optimizer.weight_decay=0", "schedule.name=constant", "schedule.warmup_steps=0",
            "run.log_every=1", "train.precision=f32", "train.loss=" + case.split("_")[0],
            "run.dir=" + run, *of["keys"], *more]


def steps(run):
    return [e["loss"] for e in fields.events(run, "step")]


def near(found, wanted, case):
    assert len(found) == len(wanted), (found, wanted)
    for a, b in zip(found, wanted):
        assert abs(a - b) <= 3e-6 * max(1, abs(b)), (case, found, wanted)


def test_losses_are_those_of_the_whole_batch():
    for case, of in golden()["cases"].items():
        for shards in (1, 4):
            run = "%s-%d" % (case, shards)
            runs.tutti(*job(case, run, "parallel.shards=%d" % shards)).expect(0)
            near(steps(run), of["losses"], case)
        # the last evaluation is one step later than PyTorch's last accuracy
        runs.tutti(*job(case, case + "-3", "train.steps=3")).expect(0)
        assert fields.events(case + "-3", "eval")[-1]["accuracy"] == of["accuracy"], case


def test_the_bits_do_not_depend_on_the_workers():
    """Also in a last batch with padding, whose rows are no negatives."""
    short = {k: v[:13] for k, v in golden()["inputs"].items()}
    fields.save("short", fields.both(short))
    for case in ("infonce", "sigmoid"):
        for data in (DATA, "short"):
            batch = [] if data == DATA else ["train.batch=8", "train.steps=6"]
            first = None
            for i, more in enumerate((["-n", "1"], ["-n", "2"],
                                      ["-n", "4", "parallel.place=processes"],
                                      ["-n", "2", "parallel.zero=3"],
                                      ["-n", "2", "parallel.load_weights=3,1"])):
                run = "%s-%s-%d" % (case, data, i)
                runs.tutti(*job(case, run, *batch, *more, data=data)).expect(0)
                first = first or runs.story(run)
                runs.same_story(first, run)
            shown = runs.tutti("eval", "%s-%s-0" % (case, data), "--json").expect(0)
            last = fields.events("%s-%s-0" % (case, data), "eval")[-1]
            assert json.loads(shown.out)["loss"] == last["loss"], (shown.out, last)


def test_devices_have_the_bits_of_the_host():
    program, runs.PROGRAM = runs.PROGRAM, runs.program_with("device")
    try:
        for case in ("infonce", "sigmoid"):
            runs.tutti(*job(case, case + "-host", "parallel.devices=cpu")).expect(0)
            for i, (n, says) in enumerate(((1, ""), (2, ""), (4, "peers=1"))):
                run = "%s-device-%d" % (case, i)
                runs.tutti(*job(case, run, "parallel.devices=gpu", "-n", str(n)),
                           env=dict(os.environ, TUTTI_TEST_DEVICE=says)).expect(0)
                runs.same_story(runs.story(case + "-host"), run)
    finally:
        runs.PROGRAM = program


OWN_LOSS = """
#include <tutti/tutti.h>

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params);

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params) {
    (void)params;
    tutti_value *a = tutti_linear(g, x, 5, "a");
    tutti_value *b = tutti_linear(g, tutti_find_field(g, "other"), 5, "b");
    tutti_init one = {.kind = TUTTI_INIT_CONSTANT, .a = 1};
    tutti_value *scale = tutti_param(g, "logit_scale", &TUTTI_SHAPE(1), &one, false);
    tutti_loss_desc desc = {.scale = tutti_exp(g, scale)};
    tutti_set_loss(g, tutti_loss_named(g, "infonce", a, b, tutti_find_present(g), &desc));
    return a;
}
"""


def test_a_plugin_has_a_contrastive_loss():
    with open("own_contrast.c", "w") as file:
        file.write(OWN_LOSS)
    plugin.build("own_contrast.c", "own_contrast.so")
    reported = None
    for workers in ("1", "2"):
        args = [a for a in job("infonce", "plugin-" + workers, "-n", workers)
                if not a.startswith(("model.file", "train.loss"))]
        runs.tutti(*args, "model.plugin=./own_contrast.so", "data.fields=all").expect(0)
        reported = reported or runs.story("plugin-1")
        runs.same_story(reported, "plugin-" + workers)


NAMED_LOSS = """
#include <tutti/tutti.h>

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params);

tutti_value *tutti_build_model(tutti_graph *g, tutti_value *x, const void *params) {
    const tutti_loss_desc desc = {%s};
    tutti_value *a = tutti_slice(g, x, 1, 0, 3); /* the layer is only there to be trained */
    (void)params;
    a = tutti_add(g, a, tutti_affine(g, tutti_linear(g, x, 3, "a"), 0, 0));
    tutti_set_loss(g, tutti_loss_named(g, "%s", a, tutti_find_field(g, "other"),
                                       tutti_find_present(g), &desc));
    return a;
}
"""


def test_losses_of_a_plugin_are_pytorchs():
    """Embeddings as they are in the data, whatever the number of shards."""
    descs = {"infonce": ".temperature = 0.5", "sigmoid": ".temperature = 0.25, .logit_bias = -3"}
    for name, desc in descs.items():
        with open(name + ".c", "w") as file:
            file.write(NAMED_LOSS % (desc, name))
        plugin.build(name + ".c", name + ".so")
        for shards in ("1", "4"):
            run = "named-%s-%s" % (name, shards)
            args = [a for a in job("infonce", run, "parallel.shards=" + shards)
                    if not a.startswith(("model.file", "train.loss"))]
            runs.tutti(*args, "model.plugin=./%s.so" % name, "data.fields=all").expect(0)
            near(steps(run), [golden()["named"][name]] * 4, name)


def test_what_cannot_compare_all_samples_is_refused():
    for more, key in ((["parallel.pipeline=2", "-n", "2"], "parallel.pipeline"),
                      (["parallel.tensor=2", "-n", "2"], "parallel.tensor"),
                      (["parallel.sync=local", "parallel.mode=fast", "-n", "2"], "parallel.sync"),
                      (["parallel.sync=parameter-server", "parallel.backup_workers=1",
                        "parallel.mode=fast", "-n", "2"], "parallel.backup_workers")):
        result = runs.tutti(*job("infonce", "refused", *more)).expect(2)
        assert key + ": the loss compares each sample" in result.err, result.err
    runs.tutti(*job("infonce", "refused", "train.logit_bias=1")).expect(2, "train.logit_bias")
    runs.tutti("train", "train.loss=infonce").expect(2, "infonce needs samples with fields")
    inputs = golden()["inputs"]
    fields.save("uneven", fields.both({"x": inputs["x"], "y": inputs["other"]}))
    args = [a for a in job("infonce", "refused", data="uneven") if not a.startswith("model.file")]
    runs.tutti(*args, "model.file=%s/pt2/interface_linear.pt2" % fields.GOLDEN,
               "data.fields=x").expect(2, "samples have no field 'y'")


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
