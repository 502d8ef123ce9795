"""Stop the build if TensorFlow was built by another compiler than the matrix says.

The matrix decides Horovod's calling convention. With a wrong one, Horovod would crash at run time.
"""

import sys


def main(expected):
    """Compare the major version that TensorFlow names with that of the matrix."""
    import tensorflow as tf

    found = tf.version.COMPILER_VERSION if hasattr(tf, "version") else tf.COMPILER_VERSION
    if found.split(".")[0] != expected.split(".")[0]:
        sys.exit("TensorFlow was built by gcc {}; the matrix says {}".format(found, expected))


if __name__ == "__main__":
    main(sys.argv[1])
