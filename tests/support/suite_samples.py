"""Results of suites for tests: one of each kind."""

from imgbuild.suites.results import Check, Report, SuiteResult, suite_result
from support.suite_results import changed

PINS = suite_result("pins", passed=3, seconds=1.5)
HOROVOD = suite_result("horovod", passed=3, seconds=1.5)
FAILED = suite_result(
    "horovod", passed=2, failures=(Check(test="test_x[mpirun]", message="a\n```\nb"),), seconds=1.0
)
_WAITED = "ran out of time: rank.py: stopped after 180 s: waiting for rank 1"
LATE = changed(FAILED, failures=(), timed_out=(Check(test="test_x[mpirun]", message=_WAITED),))
SKIPS = (Check(test="test_x", message="no | driver"),)
NO_GPU = suite_result("gpu_runs", skipped=SKIPS, seconds=1.0)
SOME_GPU = suite_result("gpu_runs", passed=3, skipped=SKIPS, seconds=1.0)


def report_of(name: str, *suites: SuiteResult) -> Report:
    return Report(name, f"sha256:{name}", "sha256:code", suites)
