"""train_test.py - tutti.train and tutti.start: results, events, history, callbacks, signals, and
what is refused."""

import copy
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings

from package import FOLDER, SMALL, check_no_growth, raises, runs

import tutti

LONG = {"train.steps": 10 ** 6, "run.checkpoint_every": -1}


def small(**more):
    return dict(SMALL, **{key.replace("__", "."): value for key, value in more.items()})


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError("%s: %r instead of %r" % (what, found, wanted))


def python(text, *arguments):
    environment = dict(os.environ, PYTHONPATH=FOLDER)
    return subprocess.run([sys.executable, "-c", text, *arguments], env=environment,
                          capture_output=True, text=True)


def test_import_is_light():
    done = python("import sys, tutti\n"
                  "print([m for m in ('ctypes', 'numpy', 'sklearn', 'torch') if m in sys.modules])")
    expect("modules that import tutti has loaded", done.stdout, "[]\n")


def test_folders_of_nvidia():
    """Those of another site-packages are named to C, unless the user names some."""
    text = """if True:
        import os, sys
        from tutti import _library
        _library.FOLDER = os.path.abspath("site/tutti")
        sys.path[:] = [os.path.abspath("site"), os.path.abspath("other")] + \
            [p for p in sys.path if not p.endswith("-packages")]
        _library.add_cuda_folders()
        print(os.environ.pop("TUTTI_CUDA_PATH", None))
        open("site/tutti/lib/tutti-cuda.so", "w").close()
        _library.add_cuda_folders()
        print(os.environ["TUTTI_CUDA_PATH"])
        os.environ["TUTTI_CUDA_PATH"] = "mine"
        _library.add_cuda_folders()
        print(os.environ["TUTTI_CUDA_PATH"])
    """
    for folder in ("site/tutti/lib", "site/nvidia/nccl/lib", "other/nvidia/cu13/lib",
                   "other/nvidia/cudnn/lib", "other/nvidia/cudnn/include"):
        os.makedirs(folder)
    found = ":".join(os.path.abspath("other/nvidia/%s/lib" % name) for name in ("cu13", "cudnn"))
    done = python(text)
    expect(done.stderr or "folders", done.stdout, "None\n%s\nmine\n" % found)


def test_same_bits_as_the_program():
    runs.tutti(*runs.small("by-program", "-n", "2")).expect(0)
    wanted = [r for r in runs.records("by-program") if r["event"] == "end"][-1]
    for workers in (1, 2, 4):
        run = tutti.train(None, small(run__dir="by-python-%d" % workers), workers=workers)
        expect("hash with %d workers" % workers, run.params_hash, wanted["params_hash"])
        expect("loss", run.result.loss, wanted["loss"])
        expect("steps", run.result.n_steps, 40)
        expect("workers", run.result.n_workers, workers)


def test_job_file_and_nested_overrides():
    with open("job.yaml", "w") as file:
        file.write("model: {name: mlp, hidden: [16]}\ntrain: {batch: 60, steps: 12}\n"
                   "data: {n_train: 512, n_test: 100}\n")
    run = tutti.train("job.yaml", {"train": {"steps": 3}, "optimizer.name": "sgd",
                                   "model.hidden": (8, 4), "model.batch_norm": None}, workers=1)
    expect("steps", run.result.n_steps, 3)
    expect("parameters", run.result.n_params, 784 * 8 + 8 + 8 * 4 + 4 + 4 * 10 + 10)
    again = tutti.train(resume=run, overrides={"train.steps": 5}, progress=False)
    expect("steps after the resume", (again.result.n_steps, again.dir), (5, run.dir))


def test_events_and_history():
    kinds = []
    run = tutti.start(None, small(), workers=2, callbacks=lambda event: kinds.append(event.kind))
    seen = [event.kind for event in run]
    expect("events of the callback", kinds, seen)
    expect("first and last", (seen[0], seen[-1]), ("start", "end"))
    expect("events of a run that has ended", [event.kind for event in run], seen)
    steps = [r["step"] for r in run.history.records if r["event"] == "step"]
    expect("steps in the history", steps, list(range(1, 41)))
    if "loss" not in run.history or "accuracy" not in run.history.eval:
        raise AssertionError("columns: %s" % list(run.history))
    expect("loaded", tutti.load(run.dir).history.records, run.history.records)


def test_warnings_of_a_silent_run():
    """Batch norm over a few samples: a warning of Python, unless the run shows its progress."""
    job = {"model.name": "resnet18", "data.format": "random_images", "data.image_size": 8,
           "data.n_train": 16, "data.n_test": 8, "train.batch": 8, "train.steps": 1,
           "parallel.shards": 2}
    for progress, n in ((False, 1), (True, 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tutti.train(None, job, workers=1, progress=progress)
        texts = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
        expect("warnings", sum("over the 4 samples of a shard" in text for text in texts), n)


def test_worker_processes():
    run = tutti.train(None, small(parallel__place="processes", run__dir="p"), workers=2)
    wanted = tutti.train(None, small(), workers=1)
    expect("hash of processes", run.params_hash, wanted.params_hash)
    expect("loss of processes", run.result.loss, wanted.result.loss)
    raises(tutti.Error, lambda: tutti.train(None, small(parallel__place="processes"),
                                            callbacks=[tutti.EarlyStopping()]),
           "callbacks", "parallel.place")


def test_callbacks_stop():
    class Stop(tutti.Callback):
        def on_step(self, run, event):
            return event.step >= 5

    run = tutti.train(None, small(**LONG), workers=2, callbacks=[Stop()])
    at = run.result.n_steps
    expect("a checkpoint where the callback stopped", runs.checkpoints(run.dir), [at])
    if not 5 <= at < 10 ** 6:
        raise AssertionError("stopped at %d" % at)
    never = tutti.EarlyStopping("loss", patience=2, min_delta=100.0)
    run = tutti.train(None, small(train__steps=1000), callbacks=[never])
    expect("the third evaluation stops it", (never.stopped_step, run.result.n_steps), (27, 27))
    expect("best", never.best_step, 9)


def test_callbacks_of_each_step():
    """They see every step and epoch, set the learning rate, save and stop."""
    class Steps(tutti.Callback):
        def __init__(self):
            self.steps, self.rates, self.epochs = [], [], []

        def on_each_step(self, run, info):
            self.steps.append(info.step)
            self.rates.append(info.lr)
            if info.step == 3:
                run.set_lr(0.125)
                run.save()
            return info.step >= 23

        def on_epoch(self, run, info):
            self.epochs.append((info.epoch, info.step, info.has_eval))

    for workers in (1, 2):
        seen = Steps()
        run = tutti.train(None, small(run__checkpoint_every=-1, run__keep=9), workers=workers,
                          callbacks=[seen])
        expect("steps", seen.steps, list(range(1, 24)))
        expect("rates", (seen.rates[2] == 0.125, set(seen.rates[3:])), (False, {0.125}))
        expect("epochs", seen.epochs, [(0, 9, True), (1, 18, True)])
        expect("checkpoints", (3 in runs.checkpoints(run.dir), runs.checkpoints(run.dir)[-1]),
               (True, 23))
        expect("stopped", (run.result.stopped_early, run.result.n_steps), (True, 23))
        raises(tutti.Error, lambda: run.set_lr(-1), "lr")
        raises(tutti.Error, lambda: run.set_lr("fast"), "lr")


def test_requests_of_a_run():
    """They are answered between steps, and the folder is known meanwhile."""
    for workers in (1, 2, 4):
        with tutti.start(None, small(run__keep=9, **LONG), workers=workers) as run:
            events = iter(run)
            while next(events).kind != "step":
                pass
            expect("its folder", os.path.dirname(run.dir), os.path.abspath("runs"))
            run.set_lr(0.125)
            run.save()
            saved = next(event for event in events if event.kind == "checkpoint")
            expect("its folder", os.path.dirname(os.path.dirname(os.path.abspath(saved.text))),
                   run.dir)
            changed = next(event for event in events if event.kind == "step" and event.lr == 0.125)
            expect("rate of a later step", changed.step > saved.step, True)
            run.stop()
        expect("stopped", (run.result.stopped_early, run.result.stop_signal), (True, 0))
        expect("checkpoints", runs.checkpoints(run.dir), [saved.step, run.result.n_steps])


def test_a_run_without_callbacks_waits_for_none():
    """Nothing of Python is called after a step, unless somebody overrides such a method."""
    from tutti import _runs

    given = []

    class Watched(_runs._Training):
        def after_step(self, method, source, control):
            given.append(method)
            super().after_step(method, source, control)

    class Every(tutti.Callback):
        def on_each_step(self, run, info):
            pass

    usual, _runs._Training = _runs._Training, Watched
    try:
        tutti.train(None, small(), workers=2, callbacks=[lambda event: None])
        expect("calls", set(given), {None})
        if len(given) > 9:  # after an evaluation or a checkpoint
            raise AssertionError(given)
        tutti.train(None, small(), workers=2, callbacks=[Every()])
        expect("calls after each step", given.count("on_each_step"), 40)
    finally:
        _runs._Training = usual


def test_start_and_stop():
    with tutti.start(None, small(**LONG), workers=2) as run:
        for event in run:
            if event.kind == "step":
                break
        raises(TimeoutError, lambda: run.wait(0.01), "has not ended")
        raises(tutti.Error, lambda: tutti.train(None, small()), "another run is in progress")
    expect("done", run.done, True)
    expect("checkpoints", runs.checkpoints(run.dir), [run.result.n_steps])


def test_callbacks_that_raise():
    def fail(event):
        if event.kind == "step":
            raise ZeroDivisionError("of the callback")

    raises(ZeroDivisionError, lambda: tutti.train(None, small(**LONG), callbacks=[fail]),
           "of the callback")
    run = tutti.start(None, small(**LONG), callbacks=[fail])
    raises(ZeroDivisionError, run.wait)
    expect("a checkpoint", len(runs.checkpoints(run.dir)), 1)
    tutti.train(None, small(), workers=1)  # nothing is left of the others


def test_every_callback_may_raise():
    """The exception is raised by the run, which ends with a checkpoint of its last step."""
    for method in ("on_start", "on_step", "on_each_step", "on_epoch", "on_eval", "on_checkpoint",
                   "on_end"):
        def fail(self, run, event):
            raise ZeroDivisionError(method)

        callback = type("Failing", (tutti.Callback,), {method: fail})()
        run = tutti.start(None, small(), workers=2, callbacks=[callback])
        for _ in range(2):  # every call of wait raises it
            raises(ZeroDivisionError, run.wait, method)
        expect("checkpoint after " + method, runs.checkpoints(run.dir)[-1], run.result.n_steps)
        again = tutti.train(resume=run, overrides={"run.checkpoint_every": -1}, progress=False)
        expect("steps after the resume", again.result.n_steps, 40)


def test_callbacks_that_wait():
    """They would wait for themselves."""
    for wait in (lambda run: run.wait(), list, lambda run: run.__exit__(None, None, None)):
        class Wait(tutti.Callback):
            def on_each_step(self, run, info):
                wait(run)

        raises(tutti.Error, lambda: tutti.train(None, small(), callbacks=[Wait()]), "run",
               "callback")
    nested = [lambda event: tutti.train(None, small())]
    raises(tutti.Error, lambda: tutti.train(None, small(), callbacks=nested), "another run")


def test_the_program_ends_before_its_run():
    """The run is stopped with a checkpoint, callbacks still work, and the program ends."""
    done = python("import tutti\n"
                  "run = tutti.start(None, %r, workers=2, callbacks=[lambda event: None])\n"
                  "next(e for e in run if e.kind == 'step')" % small(run__dir="left", **LONG))
    expect("exit code and messages", (done.returncode, done.stderr), (0, ""))
    expect("checkpoints", len(runs.checkpoints("left")), 1)


def test_processes_of_multiprocessing():
    """Children train and use what the parent has trained, however they are started."""
    with open("work.py", "w") as file:
        file.write("""if True:
            import multiprocessing, os, sys
            import tutti

            def work(number):
                folder = {"run.dir": "child-%%s-%%d" %% (sys.argv[1], number)}
                run = tutti.train(None, dict(%r, **folder), workers=2)
                with tutti.session(None, %r, workers=2) as s:
                    return run.params_hash, s.step().params_hash

            if __name__ == "__main__":
                parent = work(0)
                with tutti.session(None, %r, workers=2) as s:
                    s.step()
                    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
                        print(set(pool.map(work, range(1, 4))) == {parent})
                    print(s.step().step)
            """.replace("\n            ", "\n    ") % (small(), small(), small()))
    for kind in ("fork", "spawn"):
        done = subprocess.run([sys.executable, "work.py", kind], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=FOLDER))
        expect("children by " + kind, (done.stdout, done.stderr), ("True\n2\n", ""))


def test_copies_of_runs():
    run = tutti.train(None, small(), workers=1)
    for other in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run)):
        expect("copy", (other.dir, other.params_hash, other.done), (run.dir, run.params_hash, True))
    with tutti.start(None, small(**LONG)) as run:
        raises(tutti.Error, lambda: pickle.dumps(run), "run", "progress")


def test_ctrl_c_saves_a_checkpoint():
    text = """if True:
        import tutti, os, signal, threading
        asked = []
        def interrupt(event):  # once: a second signal ends the process
            if event.kind == 'step' and event.step >= 3 and not asked:
                asked.append(os.kill(os.getpid(), signal.%s))
        try:
            tutti.%s(None, %r, workers=2, callbacks=[interrupt])%s
        except BaseException as e:
            print(type(e).__name__, e)
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    """
    for number, call, then, kind in (("SIGINT", "train", "", "KeyboardInterrupt"),
                                     ("SIGINT", "start", ".wait()", "KeyboardInterrupt"),
                                     ("SIGTERM", "train", "", "SystemExit")):
        run = "%s-%s" % (number, call)
        done = python(text % (number, call, small(run__dir=run, **LONG), then))
        lines = done.stdout.split("\n")
        if not lines[0].startswith(kind) or lines[1] != "True":
            raise AssertionError("%s\n%s" % (done.stdout, done.stderr))
        expect("checkpoints of " + run, len(runs.checkpoints(run)), 1)


def test_ctrl_c_with_other_threads():
    """The main thread is interrupted in what it does while another one trains.  Workers that are
    processes stop too, whichever thread receives the signal."""
    text = """if True:
        import os, signal, sys, threading, time
        import tutti
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()  # blocks no signal
        job = %r

        def interrupt():
            with open(job["run.dir"] + "/metrics.jsonl", "rb") as file:
                while b'"step"' not in file.read():
                    time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)

        def when_begun():
            while not os.path.exists(job["run.dir"] + "/metrics.jsonl"):
                time.sleep(0.02)
            interrupt()

        threading.Thread(target=when_begun, daemon=True).start()
        try:
            if sys.argv[1] == "sleep":
                run = tutti.start(None, job, workers=2)
                time.sleep(60)
            elif sys.argv[1] == "train":
                threading.Thread(target=tutti.train, args=(None, job), daemon=True).start()
                time.sleep(60)
            else:
                tutti.train(None, dict(job, **{"parallel.place": "processes"}), workers=2)
        except KeyboardInterrupt:
            print("interrupted")
    """
    for how in ("sleep", "train", "processes"):
        folder = "interrupted-" + how
        begun = time.monotonic()
        done = python(text % small(run__dir=folder, **LONG), how)
        if done.stdout != "interrupted\n" or time.monotonic() - begun > 50:
            raise AssertionError("%s: %s\n%s" % (how, done.stdout, done.stderr))
        expect("checkpoints of " + folder, len(runs.checkpoints(folder)), 1)


def test_what_is_refused():
    nested, endless = {}, []
    nested["a"] = nested
    endless.append(endless)

    class Misnamed(tutti.Callback):
        def on_epoch_end(self, run, event):
            pass

    for parts, call in (
            (("overrides", "optimizer.lrr", "optimizer.lr"),
             lambda: tutti.train(None, {"optimizer.lrr": 1})),
            (("overrides",), lambda: tutti.train(None, [1])),
            (("model.hidden", "object"), lambda: tutti.train(None, {"model.hidden": object()})),
            (("job",), lambda: tutti.train(3)),
            (("job", "NUL"), lambda: tutti.train("a\0b")),
            (("there-is-none.yaml",), lambda: tutti.train("there-is-none.yaml")),
            (("workers",), lambda: tutti.train(workers=2.5)),
            (("workers",), lambda: tutti.train(workers="many")),
            (("workers",), lambda: tutti.train(workers=-1)),
            (("workers",), lambda: tutti.session(workers={})),
            (("workers", "object of type list"), lambda: tutti.train(workers=[[1]])),
            (("allow_plugin",), lambda: tutti.train(None, small(), allow_plugin="no")),
            (("overrides",), lambda: tutti.session(overrides=[1])),
            (("function",), lambda: tutti.torch_loss(3)),
            (("callbacks",), lambda: tutti.train(callbacks={"a": 1})),
            (("callbacks",), lambda: tutti.train(callbacks=[3])),
            (("callbacks",), lambda: tutti.train(callbacks=tutti.EarlyStopping)),
            (("progress",), lambda: tutti.train(progress="loud")),
            (("resume",), lambda: tutti.train(resume="nowhere")),
            (("monitor", "mode", 'use "loss"'), lambda: tutti.EarlyStopping("val_loss")),
            (("callbacks", "Misnamed.on_epoch_end", "on_epoch"),
             lambda: tutti.train(None, small(), callbacks=[Misnamed()])),
            (("callbacks", "EarlyStopping", "train.eval_every"), lambda: tutti.train(
                None, small(train__eval_every=0), callbacks=[tutti.EarlyStopping()])),
            (("monitor",), lambda: tutti.EarlyStopping(3)),
            (("monitor", "val_loss", "accuracy"), lambda: tutti.train(
                None, small(), callbacks=[tutti.EarlyStopping("val_loss", mode="min")])),
            (("patience",), lambda: tutti.EarlyStopping(patience=0)),
            (("mode",), lambda: tutti.EarlyStopping(mode="up")),
            (("run_dir",), lambda: tutti.load("nowhere")),
            (("run_dir", "empty"), lambda: tutti.load("")),
            (("run.dir", "UTF-8"), lambda: tutti.train(None, {"run.dir": "\ud800"})),
            (("overrides", "dicts within"), lambda: tutti.train(None, nested)),
            (("model.hidden", "lists"), lambda: tutti.train(None, {"model.hidden": endless})),
            (("train.seed", "digits"), lambda: tutti.train(None, {"train.seed": 10 ** 5000})),
            (("fields",), lambda: tutti.Samples(min, 9, 3)),
            (("fields", "x"), lambda: tutti.Samples(min, 9, {"x": 5})),
            (("fields", "x", "shape"), lambda: tutti.Samples(min, 9, {"x": (-1,)})),
            (("fields", "x", "shape"), lambda: tutti.Samples(min, 9, {"x": (True,)})),
            (("fields", "text"), lambda: tutti.Samples(min, 9, {3: (5,)})),
            (("n_samples",), lambda: tutti.Samples(min, 2 ** 70, {"x": (5,)})),
            (("inputs",), lambda: tutti.session(inputs="x")),
            (("inputs", "x"), lambda: tutti.session(inputs={"x": None})),
            (("n_classes",), lambda: tutti.session(n_classes="3")),
            (("n_classes",), lambda: tutti.session(n_classes=2 ** 70)),
            (("max_tokens",), lambda: tutti.generate("nowhere", "a", "many")),
            (("seed",), lambda: tutti.generate("nowhere", "a", seed=-1)),
            (("temperature",), lambda: tutti.generate("nowhere", "a", temperature="hot")),
            (("on_text",), lambda: tutti.generate("nowhere", "a", on_text=3)),
            (("max_file_bytes",), lambda: tutti.export("nowhere", "onnx", "o", max_file_bytes=.5))):
        e = raises(tutti.Error, call, *parts)
        if not e.status.startswith("E_") or not e.message or not e.exit_code:
            raise AssertionError(repr(e))
    tutti.train(None, small(), workers=1)


def test_calls_from_several_threads():
    """One of the runs trains, the others fail with a message; none waits and nothing breaks."""
    ended = []

    def train(number):
        try:
            ended.append(tutti.train(None, small(run__dir="t%d" % number)).result.n_steps)
        except tutti.Error as e:
            ended.append(e.status)

    threads = [threading.Thread(target=train, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if set(ended) - {40, "E_INVALID"} or 40 not in ended:
        raise AssertionError(ended)


def test_fork_after_import():
    """A child trains by itself, but a run of its parent is not its own."""
    run = tutti.start(None, small(**LONG), workers=2)
    while not any(e.kind == "step" for e in run._events):
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        try:
            raises(tutti.Error, run.wait, "process")
            raises(tutti.Error, lambda: tutti.train(None, small()), "in progress")
            os._exit(0)
        except BaseException as e:
            os.write(2, repr(e).encode())
            os._exit(1)
    expect("the child", os.waitpid(child, 0)[1], 0)
    run.stop()
    run.wait()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if tutti.train(None, small(), workers=2).result.n_steps == 40 else 1
        finally:
            os._exit(code)
    expect("the child of a process without a run", os.waitpid(child, 0)[1], 0)


def test_no_leak():
    """Runs that end, that are stopped, and that fail."""
    job = small(train__steps=2, run__checkpoint_every=-1)

    def cycle():
        shutil.rmtree("runs", ignore_errors=True)
        with tutti.start(None, job, workers=2, callbacks=[lambda event: None]) as run:
            run.stop()
        raises(tutti.Error, lambda: tutti.train(None, {"optimizer.lr": "fast"}))

    check_no_growth(cycle, 30)


def test_interrupted_at_a_boundary():
    """Handlers are given back: Ctrl-C after a run is an ordinary KeyboardInterrupt."""
    tutti.train(None, small(), workers=1)
    raises(KeyboardInterrupt, lambda: signal.raise_signal(signal.SIGINT))


def test_the_current_folder_may_change():
    """A relative run.dir is that of the folder in which the run was started."""
    home = os.getcwd()
    os.mkdir("other")

    def leave(run, info):
        os.chdir("other" if info.step == 1 else home)

    class Leaves(tutti.Callback):
        on_each_step = staticmethod(leave)

    class Goes(tutti.Callback):
        on_each_step = staticmethod(lambda run, info: os.chdir(os.path.join(home, "other")))

    small = dict(SMALL, **{"train.eval_every": 5, "run.checkpoint_every": 7})
    for callback in (Leaves(), Goes()):
        for n, folder in enumerate(("auto", "mine-%s" % type(callback).__name__)):
            run = tutti.train(None, dict(small, **{"run.dir": folder}), callbacks=[callback])
            os.chdir(home)
            expect("folder", os.path.dirname(run.dir),
                   os.path.join(home, "runs") if n == 0 else home)
            expect("steps", run.result.n_steps, 40)
            resumed = tutti.train(None, {"train.steps": 45}, resume=run, callbacks=[callback])
            os.chdir(home)
            expect("resumed", resumed.result.n_steps, 45)
    expect("the other folder", os.listdir("other"), [])
    run = tutti.start(None, dict(small, **{"run.dir": "started"}))
    os.chdir("other")
    run.wait()
    os.chdir(home)
    expect("started", run.dir, os.path.join(home, "started"))


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
