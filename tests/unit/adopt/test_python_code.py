"""Facts of Python files and notebooks, read without running them."""

import json
import time
from dataclasses import replace
from textwrap import dedent

import pytest

from imgbuild.adopt.python2_syntax import find_python2
from imgbuild.adopt.python_code import read_notebook, read_source
from imgbuild.adopt.source_facts import SourceFacts, decode_facts, encode_facts


def _read(text: str, path: str = "train.py") -> SourceFacts:
    return read_source(path, dedent(text))


def _notebook(*cells: str, **metadata: object) -> str:
    listed = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    listed.insert(0, {"cell_type": "markdown", "source": ["# Title"]})
    return json.dumps({"cells": listed, "metadata": metadata, "nbformat": 4})


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("tf.contrib.slim.conv2d(x)", "contrib"),
        ("with tf.Session() as s: pass", "session"),
        ("tf.placeholder(tf.float32)", "placeholder"),
        ("tf.layers.dense(x, 3)", "layers1"),
        ("tf.get_variable('w', [1])", "get_variable"),
        ("FLAGS = tf.app.flags.FLAGS\nFLAGS.size", "flags1"),
        ("tf.compat.v1.Session()", "compat.v1"),
        ("@tf.function\ndef f(): pass", "function"),
        ("tape = tf.GradientTape()", "tape"),
        ("tf.keras.Model", "tf.keras"),
        ("tf.data.experimental.AUTOTUNE", "autotune"),
        ("tf.config.list_physical_devices('GPU')", "tf.config"),
        ("tf.enable_eager_execution()", "eager1"),
        ("tf.contrib.eager.enable_eager_execution()", "eager1"),
        ("tf.train.AdamOptimizer(1e-3)", "other1"),
        ("tf.mul(a, b)", "removed0"),
        ("tf.concat(1, [a, b])", "removed0"),
        ("tf.concat(-1, [a, b])", "removed0"),
        ("tf.concat(concat_dim=1, values=v)", "removed0"),
        ("tf.train.SummaryWriter(d)", "removed0"),
        ("tf.concat([a, b], 1)", "since1"),
        ("tf.initialize_all_variables()", "deprecated0"),
        ("if tf.__version__ < '1.0': pass", "guards0"),
        ("hasattr(tf, 'mul')", "guards0"),
        ("from tensorflow.examples.tutorials.mnist import input_data", "examples1"),
        ("from tensorflow.contrib import rnn", "contrib"),
        ("import tensorflow.contrib.slim as slim", "contrib"),
        ("from tensorflow.keras import layers", "tf.keras"),
        ("from keras.models import Sequential", "keras"),
    ],
)
def test_source_signs_of_tensorflow(line: str, sign: str) -> None:
    facts = _read(f"import tensorflow as tf\n{line}")
    assert facts.tensorflow[sign] == (2,)
    assert facts.tensorflow["tensorflow"][0] == 1


def test_source_compat_is_no_sign_of_tensorflow_1() -> None:
    facts = _read("""
        import tensorflow.compat.v1 as tf
        x = tf.placeholder(tf.float32)
        with tf.Session() as session: pass
        tf.layers.dense(x, 1)
    """)
    assert {*facts.tensorflow} == {"tensorflow", "compat.v1"}


def test_source_compat_wins_over_another_import() -> None:
    facts = _read("""
        import tensorflow as tf
        if new:
            import tensorflow.compat.v1 as tf
        tf.placeholder(tf.float32)
    """)
    assert {*facts.tensorflow} == {"tensorflow", "compat.v1"}


def test_source_signs_follow_aliases() -> None:
    facts = _read("""
        import tensorflow as tf
        slim = tf.contrib.slim
        flags = tf.app.flags
        from tensorflow import Session as S
        def f():
            slim.conv2d()
            flags.DEFINE_string('a', '', '')
            S()
    """)
    assert facts.tensorflow["contrib"] == (3, 7)
    assert facts.tensorflow["flags1"] == (4, 8)
    assert facts.tensorflow["session"] == (5, 9)


def test_source_without_tensorflow_has_no_signs() -> None:
    facts = _read("""
        import torch as tf
        tf.mul(a, b)
        tf.Session()
    """)
    assert not facts.tensorflow


def test_source_names_in_strings_are_no_signs() -> None:
    facts = _read('import tensorflow as tf\n"""tf.mul, tf.contrib"""\n# tf.Session\n')
    assert {*facts.tensorflow} == {"tensorflow"}


def test_source_both_spellings_are_a_guard() -> None:
    facts = _read("""
        import tensorflow as tf
        try:
            mul = tf.mul
        except AttributeError:
            mul = tf.multiply
    """)
    assert facts.tensorflow["guards0"] == (4,)
    assert facts.removed_names == ("mul",)


def test_source_printed_version_is_no_guard() -> None:
    facts = _read("import tensorflow as tf\nprint(tf.__version__)")
    assert "guards0" not in facts.tensorflow


@pytest.mark.parametrize(
    ("code", "specifier"),
    [
        ("assert tf.__version__ >= '1.4'", ">=1.4"),
        ("assert LooseVersion(tf.VERSION) < LooseVersion('2.0')", "<2.0"),
        ("if parse(tf.__version__) < parse('1.12.0'):\n    raise ValueError", ">=1.12.0"),
        ("def f():\n    low = '1.7'\n    if tf.__version__ < low:\n        sys.exit()", ">=1.7"),
        ("if tf.__version__ <= '1.4':\n    raise ValueError", ">1.4"),
        ("if tf.__version__ < '1.4':\n    run = tf.f", ""),
        ("if tf.__version__ >= '1.4':\n    raise ValueError", ""),
        ("assert np.__version__ >= '1.4'", ""),
        ("assert tf.__version__ >= floor", ""),
    ],
)
def test_source_version_checks(code: str, specifier: str) -> None:
    facts = _read(f"import tensorflow as tf\n{code}")
    assert [text for _, text in facts.version_checks] == ([specifier] if specifier else [])
    assert decode_facts(encode_facts(facts)) == facts


def test_source_imports_have_kinds() -> None:
    facts = _read("""
        import numpy as np
        from . import model
        from ..data.loader import load
        def f():
            import tqdm
        if fast:
            import numba
        try:
            import cPickle
        except ImportError:
            import pickle
        try:
            import h5py
        except ImportError:
            raise SystemExit("install h5py")
        class A:
            import json
        try:
            start()
        finally:
            import gym
    """)
    kinds = {each.module or each.names[0]: each.kind for each in facts.imports}
    assert kinds == {
        "numpy": "required",
        "model": "required",
        "data.loader": "required",
        "tqdm": "wanted",
        "numba": "wanted",
        "cPickle": "optional",
        "pickle": "optional",
        "h5py": "required",
        "json": "required",
        "gym": "required",
    }
    assert [each.level for each in facts.imports[:3]] == [0, 1, 2]


@pytest.mark.parametrize(
    "condition",
    [
        "sys.version_info[0] == 2",
        "sys.version_info < (3,)",
        "sys.version_info.major < 3",
        "six.PY2",
        "not PY3",
        "not sys.version_info >= (3, 0)",
        "TYPE_CHECKING",
    ],
)
def test_source_imports_that_never_run_are_optional(condition: str) -> None:
    facts = _read(f"if {condition}:\n    import Queue\nelse:\n    import queue\n")
    assert [(each.module, each.kind) for each in facts.imports] == [
        ("Queue", "optional"),
        ("queue", "required"),
    ]


@pytest.mark.parametrize("condition", ["< (3, 7)", ">= (3, 6)"])
def test_source_imports_for_a_minor_python_are_wanted(condition: str) -> None:
    facts = _read(f"if sys.version_info {condition}:\n    import a\nelse:\n    import b\n")
    assert [each.kind for each in facts.imports] == ["wanted", "wanted"]


def test_source_dynamic_imports_are_wanted() -> None:
    facts = _read("""
        import importlib
        importlib.import_module("nets.vgg")
        importlib.import_module("nets." + name)
        __import__(f"agents.{name}")
    """)
    dynamic = [(each.module, each.names, each.kind) for each in facts.imports[1:]]
    assert dynamic == [
        ("nets.vgg", (), "wanted"),
        ("nets", ("**",), "wanted"),
        ("agents", ("**",), "wanted"),
    ]


@pytest.mark.parametrize(
    "code",
    [
        'print "x"',
        "print x",
        "print x, y",
        "print 'a' % b",
        "if a: print b",
        "exec code in names",
        "a <> b",
        "a = `b`",
        "try:\n    pass\nexcept IOError, error:\n    pass",
        "try:\n    pass\nexcept (IOError, OSError), error:\n    pass",
        "mode = 0777",
        "size = 10L",
        "raise ValueError, 'x'",
        "text = ur'x'",
        "def f(a, (b, c)): pass",
        "lambda (a, b): a",
        "if a:\n        b\n\tc",
    ],
)
def test_source_python2_is_recognised(code: str) -> None:
    facts = _read(f"import os\n{code}\n")
    assert facts.python2
    assert facts.broken is None


@pytest.mark.parametrize(
    "code",
    [
        "def f(:",
        "'''print \"x\"",
        "x = (1, # print x",
        "<<<<<<< HEAD",
        "print (x)\ny = = 1",
        "print(x, end='')\n)",
        "print (x) \\\n)",
        "printer x",
        "<!DOCTYPE html>\n<p title=`>x</p><>",
        "x = 'a <> b' 1",
        "a = 0x0777 b",
        "print = 3 4",
    ],
)
def test_source_other_errors_are_broken(code: str) -> None:
    facts = _read(f"import os\n{code}\n")
    assert facts.python2 is None
    assert facts.broken


def test_source_python2_line_follows_long_strings() -> None:
    assert find_python2('"""a\nb\n\\""" c\n"""\nx = 1\nprint x\n') == 6


def test_source_with_python2_names_is_python3() -> None:
    facts = _read("for i in xrange(3): print(unicode(i))")
    assert facts.python2 is None
    assert facts.broken is None


@pytest.mark.parametrize(
    ("code", "version"),
    [
        ("x = 1", "3.0"),
        ("f'{x}'", "3.6"),
        ("x: int = 1", "3.6"),
        ("from __future__ import annotations", "3.7"),
        ("import dataclasses", "3.7"),
        ("try:\n    import dataclasses\nexcept ImportError: pass", "3.0"),
        ("(x := 1)", "3.8"),
        ("def f(a, /): pass", "3.8"),
        ("def f(a: list[int]): pass", "3.9"),
        ("def f(a: int | None): pass", "3.10"),
        ("from __future__ import annotations\ndef f(a: int | None): pass", "3.7"),
        ("match x:\n    case 1: pass", "3.10"),
    ],
)
def test_source_minimum_python(code: str, version: str) -> None:
    assert _read(code).minimum_python == version


def test_source_minimum_python_is_the_newest_of_all_lines() -> None:
    lines = ["(y := 2)", "x = f'{1}'"]
    for code in ("\n".join(lines), "\n".join(reversed(lines))):
        assert _read(code).minimum_python == "3.8"


def test_source_name_is_what_it_was_bound_to_first() -> None:
    facts = _read("import tensorflow as x\nimport numpy as x\nx.contrib.slim\n")
    assert facts.tensorflow["contrib"] == (3,)


def test_source_async_as_name_is_python36() -> None:
    facts = _read("import a\nf(x, async=True)")
    assert facts.maximum_python == "3.6"
    assert facts.broken is None
    assert facts.imports[0].module == "a"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("x = 1\nif __name__ == '__main__':\n    main()", 2),
        ("if '__main__' == __name__: main()", 1),
        ("import tensorflow as tf\ntf.app.run()", 2),
        ("from absl import app\napp.run(main)", 2),
        ("from flask import app\napp.run()", 0),
        ("def f():\n    if __name__ == '__main__': pass", 0),
    ],
)
def test_source_programs(code: str, line: int) -> None:
    assert _read(code).program_line == line


def test_source_script_works_when_imported() -> None:
    assert _read("for epoch in range(3): step()").is_script
    assert _read("model.fit(x, y)").is_script
    assert not _read("def f():\n    for i in x: pass").is_script


def test_source_windows_renders_and_scipy() -> None:
    facts = _read("""
        import cv2, gym
        from scipy import misc
        from scipy.misc import imread
        cv2.imshow('x', image)
        cv2.imread('x')
        env.render()
        misc.imresize(image, 2)
        misc.face()
    """)
    assert facts.windows == (5,)
    assert facts.renders == (7,)
    assert facts.scipy_misc == (4, 8)


def test_source_renders_by_names_of_environments() -> None:
    assert _read("env.render()\npage.render()").renders == (1,)


@pytest.mark.parametrize(
    ("call", "folders"),
    [
        ("sys.path.append('..')", ("..",)),
        ("sys.path.insert(0, './lib/')", ("lib",)),
        ("sys.path.append(os.path.dirname(__file__))", ("/a/b",)),
        ("sys.path.append(os.path.join(os.path.dirname(__file__), '..', 'lib'))", ("/a/lib",)),
        ("BASE = os.path.dirname(os.path.abspath(__file__))\nsys.path.append(BASE)", ("/a/b",)),
        ("sys.path.append(str(Path(__file__).resolve().parent.parent / 'lib'))", ("/a/lib",)),
        ("sys.path.append(str(Path(__file__).parents[1]))", ("/a",)),
        ("sys.path.append(os.path.dirname(sys.argv[0]) + '/x')", ("/a/b/x",)),
        ("sys.path.extend(['x', 'y'])", ("x", "y")),
        ("sys.path += ['x']", ("x",)),
        ("sys.path.append('/home/me/lib')", ()),
        ("sys.path.append(os.path.join(os.path.dirname(__file__), '../../../..'))", ()),
        ("sys.path.append(args.folder)", ()),
        (f"sys.path.append('{'x' * 1000}')", ()),
    ],
)
def test_source_path_appends(call: str, folders: tuple[str, ...]) -> None:
    code = f"import os, sys\nfrom pathlib import Path\n{call}"
    assert read_source("a/b/train.py", code).path_appends == folders


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "code",
    [
        "-" * 200_000 + "1",
        "1+" * 100_000 + "1",
        "a" + ".a" * 100_000,
        "(" * 100_000,
        "[" * 90 + "]" * 90,
        "not " * 100_000,
        "if a:\n b\n" + "elif a:\n b\n" * 30_000,
        "x = " + "9" * 100_000,
        "x = 1\0",
        "x = '\ud800'",
        "".join(f"{' ' * level}if a:\n" for level in range(100)) + " " * 100 + "a",
        "f'" + "{" * 1000,
        "`" * 100_000,
        '"""' * 100_001,
        '\\"""' * 100_000 + "print x",
        "0" * 100_000 + "7x = = 1",
        "except " * 50_000 + ",",
        "print (" * 20_000,
        "def f(" + "a," * 100_000 + "(",
        "a = lambda: " * 5000 + "1",
    ],
)
def test_source_hostile_text_has_facts(code: str) -> None:
    assert read_source("x.py", code).path == "x.py"


def test_source_facts_are_bounded() -> None:
    names = ", ".join(f"ä{number}" for number in range(50_000))
    facts = read_source("x.py", f"from a import {names}\n" + "import b; tf.log\n" * 10_000)
    assert len(facts.imports[0].names) == 500
    code = "import tensorflow as tf\n" + "tf.contrib; import x\n" * 20_000
    assert len(read_source("x.py", code).tensorflow["contrib"]) == 1000
    code = "".join(f"import a{number}\n" for number in range(10_000))
    assert len(read_source("x.py", code).imports) == 2000
    code = "".join(f"import a{number:0400}\n" for number in range(1000))
    assert len(read_source("x.py", code).imports) < 500
    code = "import tensorflow as tf\n" + "assert tf.__version__ > '1.4'\n" * 50
    assert len(read_source("x.py", code).version_checks) == 20


def test_source_folder_bomb_is_bounded() -> None:
    lines = [f"a{n} = os.path.join({', '.join([f'a{n + 1}'] * 5)})" for n in range(40)]
    code = "import os, sys\n" + "\n".join(lines) + "\na40 = 'x'\nsys.path.append(a0)\n"
    before = time.process_time()
    assert read_source("x.py", code).path_appends == ()
    assert time.process_time() - before < 1


def test_notebook_cells_are_lines() -> None:
    text = _notebook(
        "import tensorflow as tf\n%matplotlib inline",
        "!pip install gym==0.10\nx = !ls\nimport gym",
        "%%bash\nrm -rf /",
        "tf.contrib.slim",
    )
    facts = read_notebook("a.ipynb", text)
    assert facts.is_notebook
    assert [(each.module, each.line) for each in facts.imports] == [("tensorflow", 1), ("gym", 2)]
    assert facts.tensorflow["contrib"] == (4,)
    assert facts.commands[:3] == (
        (1, "%matplotlib inline"),
        (2, "!pip install gym==0.10"),
        (2, "!ls"),
    )


def test_notebook_of_format_3_is_read() -> None:
    cell = {"cell_type": "code", "input": ["import keras"]}
    facts = read_notebook("a.ipynb", json.dumps({"worksheets": [{"cells": [cell]}]}))
    assert facts.imports[0].module == "keras"


def test_notebook_commands_are_bounded() -> None:
    facts = read_notebook("a.ipynb", _notebook(f"!{'x' * 1000}\n" * 300))
    assert [len(command) for _, command in facts.commands] == [300] * 200


def test_notebook_measured_cell_has_facts() -> None:
    facts = read_notebook("a.ipynb", _notebook("%%time\nimport keras"))
    assert facts.imports[0].module == "keras"


@pytest.mark.parametrize(
    "metadata", [{"kernelspec": {"language": "R", "name": "ir"}}, {"language_info": {"name": "R"}}]
)
def test_notebook_of_another_language_has_no_facts(metadata: dict[str, object]) -> None:
    facts = read_notebook("a.ipynb", _notebook("library(keras)", **metadata))
    assert facts == SourceFacts("a.ipynb", is_notebook=True)


def test_notebook_broken_cell_leaves_the_others() -> None:
    facts = read_notebook("a.ipynb", _notebook("def f(:", "print x", "import keras"))
    assert (facts.broken, facts.python2) == (1, 2)
    assert facts.imports[0].module == "keras"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        "[]",
        "null",
        "[" * 100_000,
        '{"cells":' * 50_000,
        '{"cells": 3}',
        '{"cells": [3, null, {"cell_type": "code"}, {"cell_type": "code", "source": [3, {}]}]}',
        '{"cells": [], "metadata": 3}',
        '{"worksheets": {"a": 1}, "cells": {"b": 2}}',
        '{"cells": [{"cell_type": "code", "source": "\\ud800 = 1"}]}',
        "NaN",
        "9" * 10_000,
    ],
)
def test_notebook_hostile_text_has_facts(text: str) -> None:
    facts = read_notebook("a.ipynb", text)
    assert facts.is_notebook
    assert not facts.imports


def test_facts_survive_their_json() -> None:
    facts = _read("""
        import tensorflow as tf, sys
        from .a import b, c
        sys.path.append('x')
        tf.mul(1, 2)
        env.render()
    """)
    facts = replace(facts, commands=((1, "!ls"),))
    assert decode_facts(encode_facts(facts)) == facts
