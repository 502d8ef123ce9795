"""Print what the check at container start knows, and for which GPUs TensorFlow's wheel was built.

`capabilities` are the wheel's own words, such as sm_80 and compute_90; None before TensorFlow 2.3,
whose wheels do not record them. TensorFlow is not imported: only its build_info.py runs.
"""

import json
import os
import runpy
import sysconfig

FACTS = "/opt/imgbuild/gpu.json"
WORDS = "tensorflow/python/platform/build_info.py"


def read():
    with open(FACTS) as stream:
        facts = json.load(stream)
    path = os.path.join(sysconfig.get_path("purelib"), WORDS)
    built = runpy.run_path(path).get("build_info", {})
    return {"facts": facts, "capabilities": built.get("cuda_compute_capabilities")}


if __name__ == "__main__":
    print(json.dumps(read()))
