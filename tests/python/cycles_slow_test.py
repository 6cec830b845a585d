"""cycles_slow_test.py - a thousand sessions and runs, one after the other, leave no memory, files
or threads behind."""

import shutil
import sys

from package import SMALL, check_no_growth, raises, runs

import tutti


def test_sessions():
    def cycle():
        with tutti.session(None, dict(SMALL), workers=2) as s:
            s.step()
            raises(tutti.Error, lambda: s.load("nowhere"))

    check_no_growth(cycle, 1000)


def test_runs():
    job = dict(SMALL, **{"train.steps": 2, "run.checkpoint_every": -1})

    def cycle():
        shutil.rmtree("runs", ignore_errors=True)
        run = tutti.train(None, job, workers=2, callbacks=[lambda event: None])
        raises(ZeroDivisionError, lambda: tutti.train(None, job, callbacks=[lambda event: 1 / 0]))
        if run.result.n_steps != 2:
            raise AssertionError(run.result)

    check_no_growth(cycle, 1000)


def test_predictions():
    run = tutti.train(None, dict(SMALL), workers=2)
    check_no_growth(run.evaluate, 300)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
