"""Write a curve for the page's chart, and vectors for its projector: the run LOGDIR/training.

Argument: LOGDIR. The tag `loss` falls at each of 60 steps. The vectors are text, so that no
checkpoint is needed.
"""

import os
import sys

from quiet_tensorflow import IS_TF2, tf

STEPS = 60
VECTORS = [(0.5, -1.0, 2.0), (1.5, 2.0, -3.0), (-2.5, 3.0, 1.0), (4.0, 8.0, 0.0)]
LABELS = ["one", "two", "three", "four"]
CONFIG = 'embeddings { tensor_path: "vectors.tsv" metadata_path: "labels.tsv" }'


def write_curve(folder):
    v1 = tf.compat.v1 if IS_TF2 else tf
    with tf.Graph().as_default():  # FileWriter refuses eager execution
        writer = v1.summary.FileWriter(folder)
    for step in range(STEPS):
        value = v1.Summary.Value(tag="loss", simple_value=10.0 / (step + 10))
        writer.add_summary(v1.Summary(value=[value]), step)
    writer.close()


def write_lines(path, lines):
    with open(path, "w") as file:
        file.writelines(line + "\n" for line in lines)


training = os.path.join(sys.argv[1], "training")
os.makedirs(training)
rows = ["\t".join(map(str, vector)) for vector in VECTORS]
write_lines(os.path.join(training, "vectors.tsv"), rows)
write_lines(os.path.join(training, "labels.tsv"), LABELS)
write_lines(os.path.join(training, "projector_config.pbtxt"), [CONFIG])
write_curve(training)
