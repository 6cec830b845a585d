"""examples_test.py - the programs and the notebook of examples/python run as they are, and the
reference page is what the docstrings say."""

import json
import os
import subprocess
import sys

from package import FOLDER, runs

SOURCE = os.environ["TUTTI_SOURCE"]
NEEDS = {"numpy_mlp": ["numpy"], "torch_module": ["numpy", "torch"],
         "torch_regression": ["numpy", "torch"], "torch_segmentation": ["numpy", "torch"],
         "torch_contrastive": ["numpy", "torch"],
         "torch_vision": ["numpy", "torch", "torchvision"],
         "sklearn_pipeline": ["numpy", "sklearn"], "callback": [], "custom_loss": ["numpy"],
         "quickstart": ["numpy"]}
SAYS = {"numpy_mlp": "accuracy on the held-out samples: 0.9", "torch_module": "Tutti: 0.9",
        "torch_regression": "explained variance: 0.9", "torch_segmentation": "mean IoU: 0.9",
        "torch_contrastive": "found among 100: 0.9", "torch_vision": "accuracy on new images: 1.0",
        "sklearn_pipeline": "accuracy of 3 folds: [", "callback": "best loss",
        "custom_loss": "accuracy: 0.9"}


def has(*modules):
    return subprocess.run([sys.executable, "-c", "import " + ", ".join(modules or ("os",))],
                          stderr=subprocess.DEVNULL).returncode == 0


def run_python(path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True,
                          env=dict(os.environ, PYTHONPATH=FOLDER))
    if done.returncode:
        raise AssertionError("%s: exit code %d\n%s%s" % (path, done.returncode, done.stdout,
                                                         done.stderr))
    return done.stdout


def test_programs():
    folder = os.path.join(SOURCE, "examples/python")
    names = sorted(n[:-3] for n in os.listdir(folder) if n.endswith(".py"))
    if names != sorted(SAYS):
        raise AssertionError("programs: %s" % names)
    for name in names:
        if has(*NEEDS[name]):
            said = run_python(os.path.join(folder, name + ".py"))
            if SAYS[name] not in said:
                raise AssertionError("%s: %s" % (name, said))


def test_notebook():
    with open(os.path.join(SOURCE, "examples/python/quickstart.ipynb")) as file:
        cells = json.load(file)["cells"]
    if any(c.get("outputs") for c in cells):
        raise AssertionError("the notebook holds outputs")
    if not has(*NEEDS["quickstart"]):
        return
    with open("notebook.py", "w") as file:
        file.write("\n".join(c["source"] for c in cells if c["cell_type"] == "code"))
    run_python("notebook.py")


def test_reference():
    done = subprocess.run([sys.executable, os.path.join(SOURCE, "tools/make-python-reference"),
                           "--check"], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr)


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
