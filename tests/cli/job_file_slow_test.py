"""job_file_slow_test.py - job_file_test.py with models that have many parameters."""

import sys

import job_file_test
import runs

globals().update(job_file_test.tests_of(job_file_test.SLOW))


if __name__ == "__main__":
    runs.main(sys.modules[__name__])
