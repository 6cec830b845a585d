"""The records of a run folder as arrays."""

import json
import os
from typing import Any, Dict, Iterator, List, Mapping

from ._errors import Error, shown


def numpy() -> Any:
    """numpy, imported when it is first needed."""
    try:
        import numpy as np
    except ImportError:
        raise Error("E_UNSUPPORTED", "arrays need numpy: pip install numpy") from None
    return np


def _with_metrics(record: Dict[str, Any]) -> Dict[str, Any]:
    """The record with its metrics as further columns; the record's own columns come first."""
    metrics = record.get("metrics")
    return {**record, **metrics, **record} if isinstance(metrics, dict) else record


class History(Mapping[str, Any]):
    """Curves of a run as numpy arrays: history["loss"], history["step"], history["lr"], ...

    `history` has one row for each training step in metrics.jsonl of the run folder, `history.eval`
    one for each evaluation, with the metrics of the job and of the model by their names:
    history.eval["auc"].  A record without the value has nan.  `records` are all records as
    dicts, which needs no numpy.
    """

    def __init__(self, records: List[Dict[str, Any]], event: str = "step"):
        self.records = records
        self._event = event
        self._rows = [_with_metrics(r) for r in records if r.get("event") == event]
        self._arrays: Dict[str, Any] = {}

    @classmethod
    def read(cls, run_dir: str) -> "History":
        """Reads RUN/metrics.jsonl.  Lines that are not records are left out."""
        path = os.path.join(run_dir, "metrics.jsonl")
        records = []
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    try:
                        record = json.loads(line)
                    except ValueError:
                        continue
                    if isinstance(record, dict):
                        records.append(record)
        except OSError as e:
            raise Error("E_CONFIG", "%s: no run there (%s)" % (path, e.strerror)) from None
        return cls(records)

    @property
    def eval(self) -> "History":
        """The evaluations of the test split."""
        return History(self.records, "eval")

    def _names(self) -> List[str]:
        names: Dict[str, None] = {}
        for row in self._rows:
            for name, value in row.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    names[name] = None
        return list(names)

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str) or name not in self._arrays:
            np = numpy()
            if not isinstance(name, str) or name not in self._names():
                raise KeyError("no column %s in the %s records: %s" %
                               (shown(name), self._event, ", ".join(self._names()) or "none yet"))
            values = [row.get(name) for row in self._rows]
            whole = all(isinstance(v, int) for v in values)
            self._arrays[name] = np.array(
                [v if isinstance(v, (int, float)) else float("nan") for v in values],
                dtype=np.int64 if whole else np.float64)
        return self._arrays[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __repr__(self) -> str:
        return "<tutti.History: %d %s records; %s>" % (len(self._rows), self._event,
                                                       ", ".join(self._names()))
