"""Let distutils compile the files of an extension in parallel, with $JOBS compilers.

distutils compiles Horovod up to 0.19, one file after another. This module is on PYTHONPATH while
the wheel is built. It is never part of an image. The command for each object stays the same.
"""

import os
from distutils.ccompiler import CCompiler
from multiprocessing.pool import ThreadPool


def compile_side_by_side(  # noqa: PLR0913, PLR0917  # the signature is distutils' own
    self,
    sources,
    output_dir=None,
    macros=None,
    include_dirs=None,
    debug=0,
    extra_preargs=None,
    extra_postargs=None,
    depends=None,
):
    """Return the objects, as ``CCompiler.compile`` does; raise the first error."""
    macros, objects, extra_postargs, pp_opts, build = self._setup_compile(
        output_dir, macros, include_dirs, sources, depends, extra_postargs
    )
    cc_args = self._get_cc_args(pp_opts, debug, extra_preargs)

    def make(item):
        target, (source, suffix) = item
        self._compile(target, source, suffix, cc_args, extra_postargs, pp_opts)

    pool = ThreadPool(int(os.environ.get("JOBS") or 1))
    try:
        pool.map(make, sorted(build.items()), chunksize=1)
    finally:
        pool.terminate()
    return objects


CCompiler.compile = compile_side_by_side
