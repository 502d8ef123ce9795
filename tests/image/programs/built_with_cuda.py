"""Print whether this TensorFlow was built with CUDA."""

import json

from quiet_tensorflow import tf

print(json.dumps({"cuda": bool(tf.test.is_built_with_cuda())}))
