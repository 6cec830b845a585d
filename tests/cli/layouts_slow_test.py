"""layouts_slow_test.py - every layout of up to 8 workers over small networks of each kind: the
losses of 20 steps are those of one worker; and a run that changes its layout again and again."""

import sys

import layouts
import runs

layouts.FEW[layouts.FEW.index("train.steps=%d" % layouts.N_STEPS)] = "train.steps=20"


def test_lenet():
    layouts.grid("lenet", layouts.all_layouts(8, most_stages=4))  # it has 4 places


def test_resnet():
    layouts.grid("resnet18", layouts.all_layouts(8), tolerance=0.1)  # momentum of noise


def test_gpt_with_tied_head_and_dropout():
    layouts.grid("gpt2", layouts.all_layouts(8), "parallel.uneven=whole")  # 4 heads


def test_bert():
    layouts.grid("bert", layouts.all_layouts(4))


def test_parts_of_state_too():
    layouts.grid("gpt2", [(2, 2, 1), (2, 1, 2), (2, 2, 2), (4, 1, 2)], "parallel.zero=1",
                 "train.ema=0.9")


def test_parts_of_gradients_and_parameters_too():
    layouts.grid("gpt2", [(2, 1, 2), (3, 1, 2), (2, 1, 4)], "parallel.zero=3", "train.ema=0.9")
    layouts.grid("bert", [(2, 2, 1), (3, 2, 1), (2, 2, 2)], "parallel.zero=2",
                 "parallel.bucket_mb=0.01")


def test_parts_of_parameters_in_stages():
    layouts.grid("gpt2", [(2, 2, 1), (3, 2, 1), (2, 4, 1)], "parallel.zero=3", "train.ema=0.9")
    layouts.grid("bert", [(2, 2, 1), (3, 2, 1), (2, 2, 2)], "parallel.zero=3",
                 "parallel.bucket_mb=0.01")


def test_joined_norms():
    layouts.grid("resnet18", [(3, 1, 2), (3, 2, 1)],
                 "parallel.sync_batch_norm=true", tolerance=0.1)


def test_joined_norms_and_parts():
    layouts.grid("resnet18", [(3, 1, 2), (3, 2, 1), (4, 1, 1)], "parallel.sync_batch_norm=true",
                 "parallel.zero=3", tolerance=0.1)


def test_own_updates_of_copies():
    """Losses, parameters and the mean of their state are those of undivided copies."""
    arguments = layouts.models()["gpt2"] + ["parallel.mode=fast", "parallel.sync=local",
                                            "parallel.average_every=5"]
    layouts.train("copies", (2, 1, 1), *arguments)
    for layout in ((2, 1, 2), (2, 2, 1), (2, 2, 2)):
        run = "copies-" + layouts.name_of(layout)
        layouts.train(run, layout, *arguments)
        layouts.same_losses("copies", run)
        layouts.same_tensors("copies", run)


def test_a_run_that_changes_its_layout():
    """Every 4 steps another one, processes among them."""
    for model in ("lenet", "gpt2"):
        arguments = layouts.models()[model] + ["train.ema=0.9"]
        layouts.train(model, (1, 1, 1), *arguments)
        run = model + "-changing"
        layouts.train(run, (2, 2, 2), *arguments, "train.steps=4")
        for step, layout in ((8, (1, 1, 2)), (12, (2, 2, 1)), (16, (1, 1, 1)), (20, (1, 2, 4))):
            layouts.continue_with(run, layout, step)
        want = {k: v for k, v in layouts.losses(model).items() if k[0] == "step"}
        got = layouts.losses(run)
        for key, loss in want.items():
            if not layouts.near(got[key], loss):
                raise AssertionError("%s: the loss of %s is %.9g instead of %.9g" % (
                    run, key, got[key], loss))
        layouts.same_tensors(model, run)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
