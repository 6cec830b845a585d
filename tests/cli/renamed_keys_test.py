"""renamed_keys_test.py - deprecated names of job keys: accepted with one warning on the command
line, in job files and in folders of older runs; an error beside the key's present name."""

import json
import os
import sys

import runs

SAYS = "%s is now called %s"


def renamed():
    """{former name: (present name, default)} of all keys, from the JSON schema."""
    schema = json.loads(runs.tutti("config", "schema").expect(0).out)["properties"]
    found = {}
    for name, row in schema.items():
        if not row.get("deprecated"):
            continue
        group, _, key = row["$ref"].removeprefix("#/properties/").replace(
            "/properties/", ".").partition(".")
        found[name] = (group + "." + key, json.dumps(schema[group]["properties"][key]["default"]))
        nested = schema[name.split(".")[0]]["properties"][name.split(".")[1]]
        assert nested == row, nested
    assert len(found) >= 1, found
    return found


def warnings(ended):
    return [line for line in ended.err.splitlines() if "is now called" in line]


def test_command_line_and_files():
    for former, (key, value) in renamed().items():
        group, name = former.split(".")
        said = SAYS % (former, key)
        ended = runs.tutti("config", "show", former + "=" + value, former + "=" + value).expect(0)
        assert warnings(ended) == ["warning: command line: " + said], ended.err
        assert "  %s: " % key.split(".")[1] in ended.out
        for text, place in (("%s:\n  %s: %s\n" % (group, name, value), "2:3"),
                            ("%s: %s\n" % (former, value), "1:1")):
            with open("job.yaml", "w") as file:
                file.write(text)
            ended = runs.tutti("config", "show", "job.yaml", key + "=" + value).expect(0)
            assert warnings(ended) == ["warning: job.yaml:%s: %s" % (place, said)], ended.err
        refused = ("error: %s: %s is also given, and both are the same key; keep only " + key)
        runs.tutti("config", "show", former + "=" + value, key + "=" + value).expect(
            2, "command line: " + refused % (key, former))
        with open("job.yaml", "w") as file:
            file.write("%s: %s\n%s: %s\n" % (key, value, former, value))
        runs.tutti("config", "show", "job.yaml").expect(
            2, "job.yaml:2:1: " + refused % (former, key))


def test_reference():
    """The former name is no key of its own, but stands in the row of the key."""
    reference = runs.tutti("config", "reference").expect(0).out
    for former, (key, _) in renamed().items():
        assert "| `%s` |" % former not in reference
        row, = (line for line in reference.splitlines() if line.startswith("| `%s` |" % key))
        assert row.endswith("(deprecated name: `%s`) |" % former), row


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def age(run):
    """Gives the job in a run folder and in its checkpoints the names of an older version."""
    paths = [run + "/job.yaml"] + ["%s/checkpoints/%s/manifest.json" % (run, step)
                                   for step in os.listdir(run + "/checkpoints")]
    for path in paths:
        with open(path) as file:
            text = file.read()
        for former, (key, _) in renamed().items():
            assert "  %s: " % key.split(".")[1] in text, (path, key)
            text = text.replace("  %s: " % key.split(".")[1], "  %s: " % former.split(".")[1])
        if path.endswith(".json"):
            body = text.split("\n", 1)[1]
            text = '{"manifest_crc32c":"%08x",\n%s' % (crc32c(body.encode()), body)
        with open(path, "w") as file:
            file.write(text)


def test_folder_of_an_older_run():
    n_keys = len(renamed())
    for place in ("threads", "processes"):
        run = "run-" + place
        keys = ["parallel.load_weights=3,1", "parallel.place=" + place, "-n", "2"]
        runs.tutti(*runs.small(run, *keys)).expect(0)
        age(run)
        commands = [["eval", run], ["report", run], ["predict", run, "data/t10k-images-idx3-ubyte"],
                    ["train", "--resume", run, "train.epochs=3", "-n", "2"]]
        runs.write_idx("data", n_train=4, n_test=4, size=28)
        for command in commands:
            ended = runs.tutti(*command).expect(0)
            assert len(warnings(ended)) == n_keys, ended.err
            assert SAYS % ("parallel.shares", "parallel.load_weights") in ended.err
            assert "other values than its checkpoint" not in ended.err, ended.err
        shown = runs.tutti("config", "show", run + "/job.yaml").expect(0).out
        assert 'load_weights: "3,1"' in shown, shown


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
