"""Write event files, one run an API: LOGDIR/API.

Arguments: LOGDIR, then the APIs: v1 (tf.summary.FileWriter and a Session), contrib
(tf.contrib.summary, before 1.14), v2 (tf.summary.create_file_writer). Two tags, four steps.
"""

import json
import os
import sys

from quiet_tensorflow import IS_TF2, tf

v1 = tf.compat.v1 if IS_TF2 else tf
if not IS_TF2:
    tf.enable_eager_execution()  # the later APIs need it; the v1 API has a graph of its own

TAGS = {"loss": lambda step: 1.0 / (step + 3), "rate/scaled": lambda step: -1e-7 * (step + 1)}
STEPS = range(4)


def write_v1(folder):
    with tf.Graph().as_default(), v1.Session() as session:
        value = v1.placeholder(tf.float32, ())
        summaries = {tag: v1.summary.scalar(tag, value) for tag in TAGS}
        writer = v1.summary.FileWriter(folder, session.graph)
        for tag, function in TAGS.items():
            for step in STEPS:
                writer.add_summary(session.run(summaries[tag], {value: function(step)}), step)
        writer.close()


def write_contrib(folder):
    summary = tf.contrib.summary
    with summary.create_file_writer(folder).as_default(), summary.always_record_summaries():
        write_each(summary.scalar)
        summary.flush()


def write_v2(folder):
    summary = tf.summary if IS_TF2 else tf.compat.v2.summary
    writer = summary.create_file_writer(folder)
    with writer.as_default():
        write_each(summary.scalar)
    writer.close()


def write_each(scalar):
    for tag, function in TAGS.items():
        for step in STEPS:
            scalar(tag, function(step), step=step)


WRITERS = {"v1": write_v1, "contrib": write_contrib, "v2": write_v2}
logdir = sys.argv[1]
for api in sys.argv[2:]:
    WRITERS[api](os.path.join(logdir, api))
print(json.dumps({api: os.listdir(os.path.join(logdir, api)) for api in sys.argv[2:]}))
