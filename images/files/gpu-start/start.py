#!/opt/python/bin/python3 -IS
"""Import the check of GPUs, which is compiled, and run it."""

import sys

sys.path.insert(0, "/usr/local/lib/imgbuild")
import gpu_start

sys.exit(gpu_start.main())
