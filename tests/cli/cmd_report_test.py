"""cmd_report_test.py - `tutti report`: the page of a run that ended, was killed, is not there."""

import os
import sys

import runs


def test_page():
    runs.tutti(*runs.small("run", "parallel.place=processes", "-n", "2")).expect(0)
    with open("run/report.html") as file:
        page = file.read()
    assert page.count("<figure>") == 7 and "Mistakes" in page and "done" in page
    assert "<title>rank 1, computing" in page and "<title>rank 2" not in page
    os.remove("run/report.html")
    runs.tutti("report", "run").expect(0, "run/report.html")
    with open("run/report.html") as file:
        again = file.read()
    assert again.count("<svg") == 7 and "Mistakes" in again


def test_times_of_all_ranks():
    """Of every rank the parts are there and are no more than the whole, however workers live."""
    for place in ("threads", "processes"):
        for n in (1, 2):
            run = place + str(n)
            runs.tutti(*runs.small(run, "parallel.place=" + place, "-n", str(n))).expect(0)
            times = [r for r in runs.records(run) if r["event"] == "times"]
            assert times[-1]["step"] == 40 and len({t["step"] for t in times}) == len(times) > 30
            for t in times:
                for rank in range(n):
                    parts = [t[k][rank] for k in ("data_s", "compute_s", "comm_s", "update_s")]
                    assert min(parts) >= 0 and t["compute_s"][rank] > 0, t
                    assert sum(parts) <= t["spent_s"][rank] * 1.001, t
                assert len(t["spent_s"]) == n
            run_s = next(r["wall_s"] for r in runs.records(run) if r["event"] == "end")
            for rank in range(n):
                assert 0 < sum(t["spent_s"][rank] for t in times) < run_s


def check_no_search_for_mistakes(*model):
    """The run of a model that is too large for it leaves them to `tutti report`."""
    runs.tutti("train", "data.format=random_images", "data.n_test=2", "train.steps=1",
               "optimizer.freeze=*", "optimizer.name=sgd", "optimizer.momentum=0", "-n", "1",
               "parallel.devices=cpu", "parallel.shards=1", "run.dir=large",
               "run.checkpoint_every=-1", *model).expect(0)
    with open("large/report.html") as file:
        assert "Not computed, because the model is slow" in file.read()
    runs.tutti("report", "large").expect(0)
    with open("large/report.html") as file:
        page = file.read()
    assert "<h2>Mistakes</h2>" in page and "Not looked for" not in page


def test_a_run_does_not_wait_for_mistakes():
    """Many parameters; a model that takes long to compute: cmd_report_slow_test.py."""
    check_no_search_for_mistakes("model.name=mlp", "model.hidden=[7000, 7000]",
                                 "data.image_size=8", "data.n_train=2", "train.batch=2")


def test_no_run():
    runs.tutti("report", "nowhere").expect(2, "nowhere")
    runs.tutti("report").expect(2, "expected a run folder")
    os.mkdir("half")
    with open("half/job.yaml", "w") as file:
        file.write("train:\n  seed: 1\n")
    runs.tutti("report", "half").expect(2, "no run there")
    with open("half/metrics.jsonl", "w") as file:
        file.write('{"event":"start"}\n{"event":"st')
    runs.tutti("report", "half").expect(0)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
