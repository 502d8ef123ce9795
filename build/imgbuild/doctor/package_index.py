"""Whether the Python package index answers, as uv is configured to reach it."""

from imgbuild.doctor.finding import Finding, Status, fine
from imgbuild.doctor.programs import Programs

TIMEOUT = 12.0
#: Small, and part of every image.
_REQUIREMENT = "wheel==0.37.1"
_COMMAND = ("pip", "compile", "--no-cache", "--no-deps", "--no-header", "--quiet", "-")
_MEND = (
    "name an index that can be reached: UV_DEFAULT_INDEX, or HTTPS_PROXY for the way to it; "
    "SSL_CERT_FILE for a CA of your network"
)


def check_index(programs: Programs, ca_bundle: str | None) -> Finding:
    """Return whether uv can resolve one small requirement without its cache."""
    from uv import find_uv_bin  # noqa: PLC0415 - only asked for here

    env = {"UV_HTTP_TIMEOUT": "5", "UV_HTTP_RETRIES": "0"}
    if ca_bundle:
        env["SSL_CERT_FILE"] = ca_bundle
    command = [find_uv_bin(), *_COMMAND]
    asked = programs.run(command, timeout=TIMEOUT, env=env, stdin=f"{_REQUIREMENT}\n")
    if asked.ok:
        return fine("Python index", "answers (asked through uv's configuration)")
    detail = f"uv cannot resolve {_REQUIREMENT}: {asked.last(2)}"
    return Finding(Status.MISSING, "Python index", detail, _MEND)
