"""Write event files in two parts, one run an API, for a TensorBoard that is running meanwhile.

Arguments: LOGDIR, then the APIs: v1 (tf.summary.FileWriter and a Session), contrib
(tf.contrib.summary, before 1.14), v2 (tf.summary.create_file_writer). The first part is
LOGDIR/first/API and LOGDIR/second/alone. Then a line is printed, and a line on standard input
waited for. The second part goes into the same files, and into the new run LOGDIR/first/late.

Scalars come last in each part: who sees them has the rest.
"""

import json
import os
import sys

from quiet_tensorflow import IS_TF2, tf

v1 = tf.compat.v1 if IS_TF2 else tf
v2 = None if not hasattr(tf, "function") else tf if IS_TF2 else tf.compat.v2
if not IS_TF2:
    tf.enable_eager_execution()  # the later APIs need it; the v1 API has a graph of its own

SCALARS = {"loss": lambda step: 1.0 / (step + 3), "rate/scaled": lambda step: -1e-7 * (step + 1)}
FIRST_STEPS, SECOND_STEPS = (0, 1), (2, 3)
SPREAD = [number / 10.0 for number in range(-20, 40)]
PICTURE = [
    [[255, 0, 0], [0, 255, 0], [0, 0, 255]],
    [[0, 0, 0], [255, 255, 255], [12, 34, 56]],
]
NOTE = "**bold** and 1 < 2"
VECTORS = [[0.5, -1.0], [1.5, 2.0], [-2.5, 3.0], [4.0, 8.0]]
LABELS = ["one", "two", "three", "four"]


def double(number):
    with tf.name_scope("suite"):
        return tf.multiply(number, 2.0, name="double")


def constants():
    """Return what a histogram and an image are made of."""
    return tf.constant(SPREAD, tf.float32), tf.constant([PICTURE], tf.uint8)


class WriterV1:
    def __init__(self, folder):
        self.folder, self.graph = folder, tf.Graph()
        with self.graph.as_default():  # FileWriter and Saver refuse eager execution
            self.value = v1.placeholder(tf.float32, ())
            self.scalars = {tag: v1.summary.scalar(tag, self.value) for tag in SCALARS}
            self.rest = self.summaries()
            double(self.value)
            vectors = v1.get_variable("vectors", initializer=tf.constant(VECTORS))
            self.saver = v1.train.Saver([vectors])
            self.session = v1.Session()
            self.session.run(vectors.initializer)
            self.writer = v1.summary.FileWriter(folder, self.graph)

    def summaries(self):
        spread, picture = constants()
        text = v1.summary.text("note", tf.constant(NOTE))
        histogram = v1.summary.histogram("spread", spread)
        return v1.summary.merge([histogram, v1.summary.image("picture", picture), text])

    def write_rest(self):
        self.writer.add_summary(self.session.run(self.rest), 0)
        with self.graph.as_default():
            self.saver.save(self.session, os.path.join(self.folder, "model.ckpt"))
        write_lines(os.path.join(self.folder, "labels.tsv"), LABELS)
        config = 'embeddings { tensor_name: "vectors" metadata_path: "labels.tsv" }'
        write_lines(os.path.join(self.folder, "projector_config.pbtxt"), [config])

    def write_scalars(self, steps):
        for tag, function in SCALARS.items():
            for step in steps:
                fed = {self.value: function(step)}
                self.writer.add_summary(self.session.run(self.scalars[tag], fed), step)
        self.writer.flush()


class WriterContrib:
    """It has no text."""

    def __init__(self, folder):
        self.summary = tf.contrib.summary
        self.writer = self.summary.create_file_writer(folder)

    def write_rest(self):
        spread, picture = constants()
        graph = tf.Graph()
        with graph.as_default():
            double(v1.placeholder(tf.float32, ()))
        with self.writer.as_default(), self.summary.always_record_summaries():
            self.summary.graph(graph, step=0)
            self.summary.histogram("spread", spread, step=0)
            self.summary.image("picture", picture, step=0)

    def write_scalars(self, steps):
        with self.writer.as_default(), self.summary.always_record_summaries():
            write_each(self.summary.scalar, steps)
            self.summary.flush()


class WriterV2:
    def __init__(self, folder):
        self.writer = v2.summary.create_file_writer(folder)

    def write_rest(self):
        spread, picture = constants()
        with self.writer.as_default():
            v2.summary.trace_on(graph=True)
            tf.function(double)(tf.constant(21.0))
            v2.summary.trace_export("trace", step=0)
            v2.summary.histogram("spread", spread, step=0)
            v2.summary.image("picture", picture, step=0)
            v2.summary.text("note", NOTE, step=0)

    def write_scalars(self, steps):
        with self.writer.as_default():
            write_each(v2.summary.scalar, steps)
        self.writer.flush()


def write_each(scalar, steps):
    for tag, function in SCALARS.items():
        for step in steps:
            scalar(tag, function(step), step=step)


def write_lines(path, lines):
    with open(path, "w") as file:
        file.writelines(line + "\n" for line in lines)


def write_value(folder, tag, number):
    """Write a run of one point, without a graph."""
    with tf.Graph().as_default():
        writer = v1.summary.FileWriter(folder)
    writer.add_summary(v1.Summary(value=[v1.Summary.Value(tag=tag, simple_value=number)]), 7)
    writer.close()


WRITERS = {"v1": WriterV1, "contrib": WriterContrib, "v2": WriterV2}


def main(logdir, apis):
    first, second = os.path.join(logdir, "first"), os.path.join(logdir, "second")
    writers = [WRITERS[api](os.path.join(first, api)) for api in apis]
    write_value(os.path.join(second, "alone"), "answer", 42.0)
    for writer in writers:
        writer.write_rest()
    for writer in writers:
        writer.write_scalars(FIRST_STEPS)
    print("first part written", flush=True)
    sys.stdin.readline()
    write_value(os.path.join(first, "late"), "answer", 43.0)
    for writer in writers:
        writer.write_scalars(SECOND_STEPS)
    print(json.dumps({api: event_files(os.path.join(first, api)) for api in apis}))


def event_files(folder):
    return [name for name in os.listdir(folder) if ".tfevents." in name]


main(sys.argv[1], sys.argv[2:])
