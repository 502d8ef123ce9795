"""Print whether Horovod says that it was built with NCCL; null before 0.18, which cannot say."""

import json

import quiet_tensorflow  # noqa: F401  # before Horovod, so that TensorFlow says nothing

import horovod.tensorflow as hvd

asked = getattr(hvd, "nccl_built", None)
print(json.dumps({"nccl": bool(asked()) if asked else None}))
