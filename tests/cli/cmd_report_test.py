"""cmd_report_test.py - `tutti report`: the page of a run that ended, was killed, is not there."""

import os
import sys

import runs


def test_page():
    runs.tutti(*runs.small("run", "parallel.place=processes", "-n", "2")).expect(0)
    with open("run/report.html") as file:
        page = file.read()
    assert page.count("<figure>") == 6 and "Mistakes" in page and "done" in page
    os.remove("run/report.html")
    runs.tutti("report", "run").expect(0, "run/report.html")
    with open("run/report.html") as file:
        again = file.read()
    assert again.count("<svg") == 6 and "Mistakes" in again


def test_no_run():
    runs.tutti("report", "nowhere").expect(2, "nowhere")
    runs.tutti("report").expect(2, "no run folder")
    os.mkdir("half")
    with open("half/job.yaml", "w") as file:
        file.write("train:\n  seed: 1\n")
    runs.tutti("report", "half").expect(2, "no run there")
    with open("half/metrics.jsonl", "w") as file:
        file.write('{"event":"start"}\n{"event":"st')
    runs.tutti("report", "half").expect(0)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
