"""arrivals.py - for tests of asynchronous workers: an order of arrivals by a clock of its own, to
be replayed, so that what is learnt does not depend on the machine."""

import heapq
import os


def by_clock(times, n_steps, bound):
    """[(batch, worker, updates in its parameters)] in the order of updates; times: of a batch, by
    worker.  Nobody begins more than bound batches while another computes one."""
    now, n_begun, reported = 0.0, 0, []
    ends = []  # heap of (time, worker, batch, updates in its parameters)
    waiting = list(range(len(times)))
    since = {}  # of who computes: how many batches each has begun since
    while len(reported) < n_steps:
        for worker in list(waiting):
            late = any(counts[worker] >= bound for counts in since.values())
            if n_begun < n_steps and not late:
                waiting.remove(worker)
                for counts in since.values():
                    counts[worker] += 1
                since[worker] = [0] * len(times)
                heapq.heappush(ends, (now + times[worker], worker, n_begun, len(reported)))
                n_begun += 1
        now, worker, batch, version = heapq.heappop(ends)
        reported.append((batch, worker, version))
        del since[worker]
        waiting.append(worker)
    return reported


def write(folder, reported, n_workers, batch, n_shards):
    """As the folder of a run of seed 1 that was recorded."""
    os.mkdir(folder)
    with open(os.path.join(folder, "arrivals.txt"), "w") as file:
        file.write("tutti arrivals 1 workers %d batch %d seed 1 shards %d\n" % (n_workers, batch,
                                                                               n_shards))
        for i, (sample, worker, version) in enumerate(reported):
            file.write("%d %d %d %d\n" % (i + 1, sample, worker, version))
