"""crowded_slow_test.py - 4,096 workers that are threads, and 256 that are processes, on a
machine of two cores: start, ten steps, the death of one, the end; and the memory of each."""

import sys

import crowded
import runs

THREADS, PROCESSES = 4096, 256


def test_threads():
    took_s, cpu_s = crowded.same_as_one("threads", THREADS, crowded.THREADS, THREADS,
                                             *crowded.nothing())
    n_bytes = crowded.peak_bytes("peak", THREADS, THREADS, *crowded.nothing())
    print("%d threads: %.1f s, %.1f s of processors, %.0f KB for each" % (
        THREADS, took_s, cpu_s, n_bytes / 1024))
    assert n_bytes <= crowded.MOST_BYTES, n_bytes


def test_a_thread_fails():
    took_s = crowded.lose_thread("lost-thread", THREADS, THREADS, *crowded.nothing())
    print("a thread of %d failed: ended %.2f s after its step began" % (THREADS, took_s))


def test_processes():
    took_s, cpu_s = crowded.same_as_one("processes", PROCESSES, crowded.PROCESSES,
                                             PROCESSES, *crowded.nothing())
    print("%d processes: %.1f s, %.1f s of processors" % (PROCESSES, took_s, cpu_s))


def test_a_process_is_killed():
    noticed_ms, n_bytes = crowded.lose_process("lost-process", PROCESSES, PROCESSES,
                                                    *crowded.nothing())
    print("a process of %d was killed: noticed after %.0f ms; %.0f KB for each" % (
        PROCESSES, noticed_ms, n_bytes / 1024))
    assert n_bytes <= crowded.MOST_BYTES, n_bytes


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
