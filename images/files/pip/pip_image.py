"""Install packages with pip next to the image's own packages, which stay as they were tested.

    pip-image install [-r FILE] [REQUIREMENT...] [any option of `pip install`]

Lines that the image fulfils itself, or that ask for another version than it keeps, are put aside,
each with a printed line; pip installs the rest. The exit code is pip's, or 2 for a request that
this image cannot fulfil. Runs with the image's own Python: 3.6 and later.
"""

import codecs
import json
import os
import re
import site
import subprocess
import sys
import sysconfig
import tempfile

PREFIX = "/opt/python"
CONSTRAINTS = PREFIX + "/constraints.txt"
#: Set for pip, and for the pip that pip starts to build a package.
NESTED = "IMGBUILD_PIP"
REFUSED, INTERRUPTED = 2, 130

#: Options of `pip install` with a value. Source: pip's documentation, "pip install".
WITH_VALUE = (
    *("-b", "-e", "-f", "-i", "-t", "--abi", "--build", "--cache-dir", "--cert", "--client-cert"),
    *("--config-settings", "-C", "--editable", "--exists-action", "--extra-index-url"),
    *("--find-links", "--global-option", "--implementation", "--index-url", "--install-option"),
    *("--keyring-provider", "--log", "--no-binary", "--only-binary", "--platform", "--prefix"),
    *("--progress-bar", "--proxy", "--python", "--python-version", "--report", "--retries"),
    *("--root", "--root-user-action", "--src", "--target", "--timeout", "--trusted-host"),
    *("--upgrade-strategy", "--use-deprecated", "--use-feature", "--build-constraint", "--group"),
)
ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
FILES = {"-r": "-r", "--requirement": "-r", "-c": "-c", "--constraint": "-c"}
#: Options that name packages.
ELSEWHERE = re.compile(r"-e|-r|--(editable|group|requirement)")
#: How many files may include one another, and how many are read.
DEEPEST, MOST_FILES = 20, 500
INCLUDED = re.compile(r"(-r|-c|--requirement|--constraint)[ =]?\s*((?!\S*://)\S.*)")
LINKS = re.compile(r"(-f|--find-links)[ =]?\s*(\S+)")

#: What an import says of a missing library, and Debian's packages that have it.
LIBRARIES = (
    ("libGL.so", "libgl1 libglib2.0-0"),
    ("libgthread-2.0.so", "libglib2.0-0"),
    ("libglib-2.0.so", "libglib2.0-0"),
    ("libSM.so", "libsm6 libxext6 libxrender1"),
    ("libICE.so", "libsm6 libxext6 libxrender1"),
    ("libXext.so", "libxext6 libxrender1"),
    ("libXrender.so", "libxrender1"),
    ("libX11.so", "libx11-6"),
    ("libxcb.so", "libxcb1"),
    ("libGLU.so", "libglu1-mesa"),
    ("libEGL.so", "libegl1"),
    ("libgomp.so", "libgomp1"),
    ("libcairo.so", "libcairo2"),
    ("libgeos_c.so", "libgeos-c1v5"),
    ("libmagic.so", "libmagic1"),
    ("libsndfile.so", "libsndfile1"),
    ("sndfile library not found", "libsndfile1"),
    ("PortAudio library not found", "libportaudio2"),
    ("libportaudio.so", "libportaudio2"),
)
HEADLESS = {
    "opencv-python": "opencv-python-headless",
    "opencv-contrib-python": "opencv-contrib-python-headless",
}
#: Import packages, and tell which cannot be imported; they may print what they like.
IMPORT_PROGRAM = """
import importlib, json, os, sys
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for name, modules in json.loads(sys.argv[1]):
    for module in modules:
        answer.write(json.dumps([name, None]) + "\\n")
        answer.flush()
        try:
            importlib.import_module(module)
        except BaseException as error:
            said = "{}: {}".format(type(error).__name__, error)
            answer.write(json.dumps([name, said]) + "\\n")
            break
    else:
        answer.write(json.dumps([name, ""]) + "\\n")
answer.flush()
os._exit(0)
"""


def decode_text(content):
    """Return the text of a file of any editor; ValueError: it is neither UTF-8 nor UTF-16."""
    for mark, encoding in ENCODINGS:
        if content.startswith(mark):
            return content.decode(encoding)
    return content.decode("utf-8")


class Request:
    """The packages that the words after `pip install` ask for, judged by the rules of the image.

    ``kept`` and ``bounds`` are the requirements and constraints that pip gets, ``words`` its other
    arguments. ``aside`` are lines that the image answers itself, ``notes`` those that are read as
    another line, ``refused`` those that this image cannot fulfil.
    """

    def __init__(self, words, facts):
        self.facts = facts
        self.kept, self.bounds, self.words = [], [], []
        self.aside, self.notes, self.refused = [], [], []
        self.files = 0
        waiting = iter(words)
        for word in waiting:
            name, equals, value = word.partition("=")
            if word[:2] in FILES and not word.startswith("--") and len(word) > 2:
                self.read(word[2:], FILES[word[:2]])
            elif name in FILES:
                self.read(value if equals else next(waiting, ""), FILES[name])
            elif word in WITH_VALUE:
                self.words += [word, next(waiting, "")]
            elif word.startswith("-"):
                self.words.append(word)
            else:
                self.add("the command line", word, "-r")

    def read(self, path, kind, above=()):
        """Add the lines of a file of requirements (``-r``) or constraints (``-c``)."""
        from requirement_rules import logical_lines

        if "://" in path:
            self.words += [kind, path]
            return
        if os.path.realpath(path) in above:
            raise ValueError("{} includes itself; take that line out".format(path))
        self.files += 1
        if len(above) >= DEEPEST or self.files > MOST_FILES:
            raise ValueError("{}: too many files include one another".format(path))
        with open(path, "rb") as file:
            text = decode_text(file.read())
        above, folder = (*above, os.path.realpath(path)), os.path.dirname(path)
        for number, line in logical_lines(text):
            included, links = INCLUDED.fullmatch(line), LINKS.fullmatch(line)
            if included:
                inner = "-c" if kind == "-c" else FILES[included.group(1)]
                self.read(os.path.join(folder, included.group(2)), inner, above)
            elif links and os.path.exists(os.path.join(folder, links.group(2))):
                self.kept.append("-f " + os.path.abspath(os.path.join(folder, links.group(2))))
            else:
                self.add("{}:{}".format(path, number), line, kind)

    def add(self, place, line, kind):
        from requirement_rules import DIFFERS, PASSES, judge_line, repair_line

        target = self.kept if kind == "-r" else self.bounds
        meant, note = repair_line(line)
        if note:
            self.notes.append("{}: {}".format(place, note))
        if not meant:
            return
        verdict = judge_line(meant, self.facts)
        answer = "{}: {}: {}".format(place, line, verdict.reason)
        if verdict.outcome not in {PASSES, DIFFERS}:
            self.refused.append(answer)
        elif verdict.reason and verdict.kept:
            self.notes.append("{}; read as {}".format(answer, verdict.kept))
        elif verdict.reason:
            self.aside.append(answer)
        if verdict.kept:
            target.append(verdict.kept)

    def names(self):
        """Return the canonical names of the packages that pip gets by name."""
        from pip._vendor.packaging.utils import canonicalize_name
        from requirement_rules import parse_line

        found = [parse_line(line) for line in self.kept]
        return [str(canonicalize_name(one.name)) for one in found if one]


def main(words):
    """Return the exit code of ``pip-image`` with these arguments."""
    if words[:1] != ["install"] or words[1:] in (["-h"], ["--help"]):
        sys.stdout.write(__doc__)
        return 0 if {"-h", "--help"} & {*words} else REFUSED
    if os.environ.get("VIRTUAL_ENV", PREFIX) != PREFIX:
        return refuse(
            "This installs into the image's own Python, and a virtual environment is active. Use "
            "its own pip, to which the image's versions mean nothing, or run `deactivate` first."
        )
    try:
        request = Request(words[1:], image_facts())
    except (OSError, ValueError) as error:
        return refuse("{}. Nothing was installed.".format(error))
    if request.refused:
        lines = "".join("\n  " + line for line in request.refused)
        return refuse(
            "This image cannot fulfil these lines:{}\nUse the image of the TensorFlow that they "
            "ask for (tags begin with its minor version, such as 2.4-cpu), or change the lines. "
            "Nothing was installed.".format(lines)
        )
    for line in request.aside:
        tell("puts aside " + line)
    for line in request.notes:
        tell(line)
    if not request.kept and not any(map(ELSEWHERE.match, request.words)):
        tell("nothing is left to install")
        return 0
    code = run_pip(request)
    if code == 0:
        for problem in import_problems(request.names()):
            tell(problem)
    return code


def tell(text):
    sys.stdout.write("pip-image: {}\n".format(text))
    sys.stdout.flush()


def refuse(text):
    sys.stderr.write("pip-image: {}\n".format(text))
    return REFUSED


def image_facts():
    """Return what the rules need of this image."""
    from requirement_rules import ImageFacts, parse_constraints

    packages = {name: version for name, (version, _) in installed().items()}
    with open(CONSTRAINTS, "rb") as file:
        return ImageFacts(packages, parse_constraints(decode_text(file.read())))


def installed(*others):
    """Return the version and the folder of the metadata of each distribution, by its name."""
    from pip._vendor.packaging.utils import canonicalize_name

    found = {}
    for folder in (*others, sysconfig.get_path("platlib"), sysconfig.get_path("purelib")):
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            match = re.fullmatch(r"(.+?)-([^-]+)(-py[\d.]+)?\.(dist|egg)-info", entry)
            if match:
                name = str(canonicalize_name(match.group(1)))
                found[name] = (match.group(2), os.path.join(folder, entry))
    return found


def run_pip(request):
    """Return pip's exit code for what is left of a request."""
    with tempfile.TemporaryDirectory(prefix="pip-image-") as folder:
        words = [*request.words]
        for name, lines in (("requirement", request.kept), ("constraint", request.bounds)):
            if lines:
                path = os.path.join(folder, name + "s.txt")
                with open(path, "w", encoding="utf-8") as file:
                    file.write("".join(line + "\n" for line in lines))
                words += ["--" + name, path]
        environment = dict(os.environ, **{NESTED: "1"})
        try:
            return subprocess.call(
                [sys.executable, "-m", "pip", "install", *words], env=environment
            )
        except KeyboardInterrupt:
            return INTERRUPTED


def import_problems(names):
    """Yield a sentence for each of these packages that is installed and cannot be imported."""
    there = installed(site.getusersitepackages())
    known = [(name, modules_of(there[name][1])) for name in names if name in there]
    words = [sys.executable, "-c", IMPORT_PROGRAM, json.dumps(known)]
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", MPLBACKEND="Agg")
    with tempfile.TemporaryDirectory(prefix="pip-image-") as folder:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        answers = process.communicate()[0].decode("utf-8", "replace").splitlines()
    said = dict(json.loads(line) for line in answers)
    for name, _ in known:
        problem = said.get(name, "")
        if problem is None:
            problem = "the interpreter crashed"
        if problem:
            yield "{} is installed, but cannot be imported: {}".format(name, remedy(name, problem))


def remedy(name, problem):
    """Return what an import said, and what to do if it missed a library."""
    text = problem.strip().splitlines()[-1] if problem.strip() else problem
    for sign, packages in LIBRARIES:
        if sign in problem:
            way = "install Debian's package in the Dockerfile, before pip-image:\n    "
            way += "RUN apt-get update && apt-get install -y --no-install-recommends " + packages
            if name in HEADLESS:
                way = "ask for {} instead, or {}".format(HEADLESS[name], way)
            return "{}\n  To correct this, {}".format(text, way)
    return text


def modules_of(metadata):
    """Return the top modules of an installed distribution: public ones, without tests."""
    names = set()
    for name in ("top_level.txt", "RECORD"):
        path = os.path.join(metadata, name)
        if not names and os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    first, slash, rest = line.strip().split(",")[0].partition("/")
                    if name == "top_level.txt" and first:
                        names.add(first + slash + rest)
                    elif rest == "__init__.py" or (not slash and first.endswith(".py")):
                        names.add(re.sub(r"\.py$", "", first))
    others = {"test", "tests", "doc", "docs", "example", "examples", "benchmarks", "scripts"}
    return sorted(
        name.replace("/", ".") for name in names if not name.startswith("_") and name not in others
    )


def watch_pip():
    """Explain a failure of the plain pip that this process becomes, if it comes of the image.

    The image's site-packages have a file that calls this when Python starts for `pip install`, so
    that it works with every pip. Every version of pip ends by `sys.exit`.
    """
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().decode("utf-8", "replace").split("\0")[:-1]
    arguments = pip_arguments(words)
    if arguments is None or sys.prefix != PREFIX or NESTED in os.environ:
        return
    os.environ[NESTED] = "1"
    leave, process = sys.exit, os.getpid()

    def explain_and_exit(code=None):
        if code and os.getpid() == process:
            explain(arguments)
        leave(code)

    sys.exit = explain_and_exit


def pip_arguments(words):
    """Return the arguments of `pip install` in the words of a process; None: it is another."""
    for index, word in enumerate(words[1:], 1):
        if word == "-m" or not word.startswith("-"):
            program = words[index + 1 : index + 2] if word == "-m" else [os.path.basename(word)]
            if not program or not re.fullmatch(r"pip[\d.]*", program[0]):
                return None
            rest = words[index + 1 + (word == "-m") :]
            return rest[rest.index("install") + 1 :] if "install" in rest else None
    return None


def explain(arguments):
    """Name the lines that the image answers in another way than they say, and the command."""
    if os.environ.get("PIP_CONSTRAINT") or "--isolated" in arguments:
        return
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    try:
        request = Request(arguments, image_facts())
    except Exception:  # noqa: BLE001 - pip has said what is wrong
        return
    finally:
        sys.path.pop()
    lines = "".join("\n  " + line for line in request.refused + request.aside + request.notes)
    if lines:
        sys.stdout.flush()
        sys.stderr.write(
            "\nThe image keeps its own TensorFlow and what belongs to it:{}\n".format(lines)
        )
    if lines and not request.refused:
        sys.stderr.write(
            "This installs the rest: pip-image install {}\n".format(
                " ".join(map(quoted, arguments))
            )
        )


def quoted(word):
    import shlex

    return shlex.quote(word)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
