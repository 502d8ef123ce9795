"""Check that builds can reach their inputs: base images, CPython, packages and CAs."""

import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from imgbuild.core import settings
from imgbuild.core.errors import ImgbuildError, MachineError
from imgbuild.core.files import ContentStore, work_folder
from imgbuild.core.parallel import in_parallel
from imgbuild.core.process import run
from imgbuild.core.text import count_text
from imgbuild.core.user_folders import cache_dir
from imgbuild.dockerfile.variables import NVIDIA_UPSTREAMS
from imgbuild.doctor.checks import WRITE, Finding, Status, ask_check
from imgbuild.doctor.host_system import install_command
from imgbuild.inputs.bootstrap import (
    KEYRINGS,
    MADE_IN_PLACE,
    find_bootstrapped,
    missing_packages,
)
from imgbuild.inputs.build_inputs import list_downloads
from imgbuild.inputs.local_prefix import find_prefixes, verify_prefix
from imgbuild.inputs.upstream_files import find_image
from imgbuild.locks.requirements import index_environment
from imgbuild.locks.resolver import call_uv
from imgbuild.matrix.images import Image
from imgbuild.net.sites import CA_VARIABLES, SYSTEM_BUNDLES, Sites

SOURCE_SECONDS = 5.0
ARCHIVE_SECONDS = 15.0
INDEX_SECONDS = 12.0
#: The smallest component of each archive: its index has a few kB, while main's has many MB.
_SMALL_COMPONENT = {"debian": "contrib", "ubuntu": "multiverse"}
#: A small package that every image contains.
_REQUIREMENT = "wheel==0.37.1"
#: The folder of Debian's copies of public CAs; CAs that an administrator adds are elsewhere.
_PUBLIC_CAS = Path("/usr/share/ca-certificates")


def check_base(
    image: Image, sites: Sites, can_pull: Callable[[str], bool] = lambda _: False
) -> Finding:
    """Return whether the base of an image is available from the source in the settings.

    ``can_pull`` returns whether the engine has an image or can reach its registry. A base that this
    machine makes must already exist, because builds do not make it.
    """
    name, system = image.os_name, image.os
    setting, what = sites.settings.base_for(name, system.image), f"base {image.base_name}"
    if setting.path:
        return Finding(Status.FINE, what, f"the OCI layout {setting.path}")
    reference = setting.image
    if reference is None:
        finding = _check_bootstrap(image)
        if system.image and name not in sites.settings.base:
            why = f"no registry had {system.image}; `imgbuild build --refresh` asks again"
            finding = replace(finding, detail=f"{finding.detail}: {why}")
        if finding.fix is None and find_bootstrapped(image, sites.settings) is None:
            detail = f"{finding.detail}; not made yet"
            return replace(finding, status=Status.MISSING, detail=detail, fix=WRITE)
        return finding
    answer, problem = ask_check(lambda: find_image(reference, sites), ARCHIVE_SECONDS)
    if answer or can_pull(reference):
        return Finding(Status.FINE, what, f"{reference}, which can be pulled or is in the engine")
    cause = problem.partition(". ")[0].rpartition(" failed: ")[2]
    detail = f"{reference}: its registry does not answer ({cause})"
    fix = (
        "let this machine and the engine reach the registry (HTTPS_PROXY), or set another registry "
        "with this image in imgbuild.local.yaml: registry: HOST/FOLDER"
    )
    if name not in sites.settings.base and system.distribution in MADE_IN_PLACE:
        bootstrap = _check_bootstrap(image)
        if bootstrap.fix is None:
            detail = f"{detail}, so it must be {bootstrap.detail}"
            return Finding(Status.MISSING, what, detail, WRITE)
        fix = f"{fix}\nor make it on this machine: {bootstrap.fix.splitlines()[0]}"
    return Finding(Status.MISSING, what, detail, fix)


def _check_bootstrap(image: Image) -> Finding:
    """Return whether mmdebstrap can make a base image on this machine.

    For the check, mmdebstrap verifies the archive and fetches one small index.
    """
    name, system = image.os_name, image.os
    what = f"base {image.base_name}"
    archive = f"{system.distribution.capitalize()}'s archive ({system.suite})"
    packages = missing_packages(system.distribution)
    if packages:
        detail = f"made from the distribution's archive, which needs {', '.join(packages)}"
        fix = f"{install_command(*packages)}\nor set a base image from a registry (settings: base)"
        return Finding(Status.MISSING, what, detail, fix)
    command = [
        "mmdebstrap",
        "--variant=custom",
        "--format=null",
        f"--architectures={image.architecture}",
        f"--components={_SMALL_COMPONENT[system.distribution]}",
        f"--keyring={KEYRINGS[system.distribution][0]}",
        '--aptopt=Acquire::http::Timeout "4"',
        '--aptopt=Acquire::https::Timeout "4"',
        '--aptopt=Acquire::Retries "0"',
        system.suite,
    ]
    with tempfile.TemporaryDirectory(prefix="imgbuild-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # without root, mmdebstrap runs with a subordinate user id
        environment = {**os.environ, "TMPDIR": folder, "LC_ALL": "C.UTF-8"}
        tried = run(command, timeout=ARCHIVE_SECONDS, env=environment)
    if tried.ok:
        return Finding(Status.FINE, what, f"bootstrapped from {archive}, which answers")
    lines = [line.strip() for line in tried.errors.splitlines()]
    # apt's first error has the reason; the following ones do not.
    first = next((line for line in lines if line.startswith("E: ")), tried.last(1))
    fix = (
        "set apt's proxy (/etc/apt/apt.conf.d, Acquire::http::Proxy) or http_proxy, or set a base "
        "image in imgbuild.local.yaml: "
        f"base: {{{name}: {{from: registry, image: NAME@sha256:DIGEST}}}}"
    )
    detail = f"{archive} cannot be used: {first.removeprefix('E: ')}"
    return Finding(Status.MISSING, what, detail, fix)


def interpreter_name(image: Image) -> str:
    """Return the name of the finding for CPython, which is one for each version and platform."""
    other = "" if image.architecture == "amd64" else f", {image.platform}"
    return f"CPython {image.version_of('python')}{other}"


def check_interpreter(image: Image, sites: Sites) -> Finding:
    """Return whether CPython is available from the settings' prefix, its source or another prefix.

    The prefix in the settings is kept as long as it is valid. Images of another architecture than
    this machine's can use no prefix.
    """
    version, python = image.version_of("python"), image.python
    what = interpreter_name(image)
    if python.origin == "conda":
        return Finding(Status.SKIPPED, what, "from conda packages, each with its own URL")
    if python.origin == "apt":
        return Finding(Status.SKIPPED, what, f"a package from the archive of {python.os}")
    address = sites.address(image.matrix.sources[python.source].url)
    _, problem = ask_check(lambda: _ask(address, sites), SOURCE_SECONDS)
    unreachable = f"{address} does not answer ({problem})"
    from_source = "compiled from its source, which can be downloaded"
    if image.machine != platform.machine():
        fix = f"let this machine reach the source: a prefix here is not for {image.platform}"
        lacking = Finding(Status.MISSING, what, unreachable, fix)
        return lacking if problem else Finding(Status.FINE, what, from_source)
    current = sites.settings.interpreter_for(version, image.machine)
    named = [Path(current.path)] if isinstance(current, settings.PrefixInterpreter) else []
    prefixes, faults = [], []
    for path in dict.fromkeys([*named, *find_prefixes(version)]):
        try:
            verify_prefix(path, version)
            prefixes.append(path)
        except ImgbuildError as error:
            faults.append(str(error))
    way: settings.Interpreter = settings.SourceInterpreter()
    detail = from_source
    if prefixes and (problem or prefixes[0] in named):
        way = settings.local_prefix(prefixes[0])
        detail = f"local prefix {way.path}" + (f"; {unreachable}" if problem else "")
    elif problem:
        causes = [fault.partition(". ")[0] for fault in faults]
        detail = f"{unreachable}. {'. '.join(causes) or 'No local prefix has it'}"
        fix = (
            f"let this machine reach the source, or install CPython {version} into a prefix "
            "(built elsewhere, or with pyenv) and set it in imgbuild.local.yaml: "
            f"cpython: {{{version}: {{from: prefix, path: /opt/python-{version}}}}}"
        )
        return Finding(Status.MISSING, what, detail, fix)
    choice = {"cpython": {version: way}}
    if way == current:
        return Finding(Status.FINE, what, detail, choice=choice)
    return Finding(Status.MISSING, what, detail, WRITE, choice)


def _ask(url: str, sites: Sites, *, exists: bool = True) -> None:
    """Request the first byte, because some mirrors reject HEAD; ``exists`` requires status OK."""
    with sites.client().stream("GET", url, {"Range": "bytes=0-0"}) as response:
        if exists and not response.ok:
            raise MachineError(f"HTTP status {response.status_code}")


def check_sites(images: Sequence[Image], locks: Path, sites: Sites) -> list[Finding]:
    """Return whether the sites for downloads and system packages answer.

    CPython and Python packages have separate checks. Cached files are not checked.
    """
    store, named = ContentStore(cache_dir() / "downloads"), sites.upstreams
    needed: set[str] = set()
    for image in images:
        downloads = list_downloads(image, locks, sites.settings)
        pythons = [python for python in image.matrix.python.values() if python.origin == "source"]
        checked = {image.matrix.sources[python.source].url for python in pythons}
        needed.add(image.os.distribution)
        if image.apt_cuda:
            needed.update(NVIDIA_UPSTREAMS)
        for file in downloads.all:
            if file.url not in checked and not store.find(file.sha256):
                needed.update(name for name, site in named.items() if file.url.startswith(site))

    def ask(name: str) -> Finding:
        mirror, what = sites.settings.mirrors.get(name), f"site {name}"
        address = mirror.addresses(name)[name] if mirror else named.get(name)
        if address is None:
            return Finding(Status.SKIPPED, what, "builds use the address in the base image")
        _, problem = ask_check(lambda: _ask(address, sites, exists=False), SOURCE_SECONDS)
        if not problem:
            return Finding(Status.FINE, what, "answers")
        fix = (
            "let this machine and the engine reach it, or set a mirror in imgbuild.local.yaml: "
            f"mirrors: {{{name}: URL}}"
        )
        return Finding(Status.MISSING, what, f"{address} does not answer ({problem})", fix)

    return in_parallel(ask, sorted(needed), len(named))


def check_index(sites: Sites) -> Finding:
    """Return whether uv, with its current configuration, can resolve one small requirement."""
    options = ("--no-cache", "--no-deps", "--no-header", "-")
    # Retry a lost request once; a build retries more often.
    environment = {**index_environment(sites), "UV_HTTP_TIMEOUT": "5", "UV_HTTP_RETRIES": "1"}
    try:
        with work_folder("index") as folder:
            text = f"{_REQUIREMENT}\n"
            tried = call_uv(options, folder, environment, text=text, timeout=INDEX_SECONDS)
        problem = "" if tried.ok else tried.last(2)
    except ImgbuildError as error:
        problem = str(error)
    if not problem:
        return Finding(Status.FINE, "Python index", "answers (through uv's configuration)")
    detail = f"uv cannot resolve {_REQUIREMENT}: {problem}"
    fix = (
        "set a reachable index with UV_DEFAULT_INDEX or the mirror python-index; set HTTPS_PROXY "
        "for a proxy, and SSL_CERT_FILE for a private CA of your network"
    )
    return Finding(Status.MISSING, "Python index", detail, fix)


def check_ca(configured: str | None, environment: Mapping[str, str] = os.environ) -> Finding:
    """Return whether builds get the CAs that this machine trusts.

    An existing bundle in the settings is kept. Otherwise, builds need the machine's bundle if it
    has CAs that are on no public list.
    """
    what = "CA bundle"
    if configured and Path(configured).is_file():
        detail = f"{configured}, passed to builds as a secret (imgbuild.local.yaml)"
        return Finding(Status.FINE, what, detail)
    name = next((name for name in CA_VARIABLES if environment.get(name)), None)
    bundles = (Path(environment[name]),) if name else SYSTEM_BUNDLES
    bundle = next((path for path in bundles if path.is_file()), None)
    choice = {"ca_bundle": None}
    if name and not bundle:
        detail = f"{name} names {bundles[0]}, which does not exist"
        return Finding(Status.MISSING, what, detail, f"unset {name}", choice)
    if not bundle or not (private := _count_private(bundle)):
        return Finding(Status.FINE, what, "no private CA in use", choice=choice)
    named = name or "the system's bundle"
    detail = (
        f"{bundle} ({named}) has {count_text(private, 'private CA')}; builds need it as a secret"
    )
    return Finding(Status.WARNING, what, detail, WRITE, {"ca_bundle": str(bundle)})


def _count_private(bundle: Path) -> int:
    """Return the number of CAs in ``bundle`` that are neither in Mozilla's nor in Debian's list."""
    import certifi  # noqa: PLC0415 - 300 KB that only the doctor needs

    files = [*_PUBLIC_CAS.rglob("*.crt"), Path(certifi.where())]
    public: set[str] = set().union(*map(_read_certificates, files))
    return len(_read_certificates(bundle) - public)


def _read_certificates(path: Path) -> set[str]:
    """Return a file's certificates in base64 without line breaks; empty if it is unreadable."""
    with suppress(OSError, UnicodeDecodeError):
        blocks = path.read_text("utf-8").split("-----BEGIN CERTIFICATE-----")[1:]
        return {"".join(block.partition("-----END")[0].split()) for block in blocks}
    return set()
