"""Follows a run with a callback of its own, and stops it when it no longer improves."""

import tutti


class Log(tutti.Callback):
    def on_eval(self, run, event):
        print("epoch %d: loss %.4f, accuracy %.4f" % (event.epoch, event.loss, event.accuracy))
        return event.accuracy > 0.99  # True stops the run with a checkpoint


stopping = tutti.EarlyStopping("loss", patience=2)
run = tutti.train({"model": {"name": "mlp", "hidden": [64]},
                   "data": {"n_train": 2000, "n_test": 500},  # digits that the program draws
                   "train": {"epochs": 8}}, callbacks=[Log(), stopping])
print("best loss %.4f at step %d of %d" % (stopping.best, stopping.best_step, run.result.n_steps))
