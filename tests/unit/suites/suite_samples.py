"""Results of suites for tests: one of each kind."""

from dataclasses import replace

from imgbuild.suites.results import Report, SuiteResult, TestFailure, TestSkip

PINS = SuiteResult("pins", 3, (), (), 1.5)
HOROVOD = SuiteResult("horovod", 3, (), (), 1.5)
FAILED = SuiteResult("horovod", 2, (TestFailure("test_x[mpirun]", "a\n```\nb"),), (), 1.0)
_WAITED = "ran out of time: rank.py: stopped after 180 s: waiting for rank 1"
LATE = replace(FAILED, failures=(), timed_out=(TestFailure("test_x[mpirun]", _WAITED),))
SKIPS = (TestSkip("test_x", "no | driver"),)
NO_GPU = SuiteResult("gpu_runs", 0, (), SKIPS, 1.0)
SOME_GPU = SuiteResult("gpu_runs", 3, (), SKIPS, 1.0)


def report_of(name: str, *suites: SuiteResult) -> Report:
    return Report(name, f"sha256:{name}", "sha256:code", suites)
