"""Names below ``tensorflow`` that are signs of its version.

Source: the files ``tensorflow/tools/api/golden`` of the releases, and the release notes of 1.0.
"""

#: The sign of a name below ``tensorflow``, also of all names below it.
_SIGNS = {
    "contrib": "contrib",
    **dict.fromkeys(
        (
            "Session",
            "InteractiveSession",
            "ConfigProto",
            "GPUOptions",
            "train.MonitoredSession",
            "train.MonitoredTrainingSession",
            "train.Supervisor",
        ),
        "session",
    ),
    **dict.fromkeys(
        ("placeholder", "placeholder_with_default", "sparse_placeholder"), "placeholder"
    ),
    "layers": "layers1",
    "get_variable": "get_variable",
    "app": "flags1",
    "flags": "flags1",
    "compat.v1": "compat.v1",
    "function": "function",
    "GradientTape": "tape",
    "keras": "tf.keras",
    "python.keras": "tf.keras",
    "data.AUTOTUNE": "autotune",
    "data.experimental.AUTOTUNE": "autotune",
    "config": "tf.config",
    "enable_eager_execution": "eager1",
    "examples.tutorials": "examples1",
}
#: Calls that TensorFlow 1.0 removed, and their names since then.
REMOVED_NAMES = {
    "mul": "multiply",
    "sub": "subtract",
    "neg": "negative",
    "pack": "stack",
    "unpack": "unstack",
    "select": "where",
    "batch_matmul": "matmul",
    "scalar_summary": "summary.scalar",
    "image_summary": "summary.image",
    "audio_summary": "summary.audio",
    "histogram_summary": "summary.histogram",
    "merge_summary": "summary.merge",
    "merge_all_summaries": "summary.merge_all",
    "train.SummaryWriter": "summary.FileWriter",
    "nn.seq2seq": "contrib.legacy_seq2seq",
}
#: Names of 0.x that 1.0 deprecated, and 1.15 still has.
_DEPRECATED = ("initialize_all_variables", "initialize_local_variables", "initialize_variables")
#: Other names of TensorFlow 1 that TensorFlow 2 has only below ``compat.v1``.
_OTHER_1 = (
    *("FIFOQueue", "FixedLenFeature", "GraphKeys", "WholeFileReader", "add_to_collection"),
    *("assign", "assign_add", "assign_sub", "decode_raw", "div", "get_collection"),
    *("get_default_graph", "get_default_session", "gfile", "global_variables"),
    *("global_variables_initializer", "image.resize_bilinear", "image.resize_images"),
    *("local_variables_initializer", "log", "logging", "matrix_inverse", "nn.rnn_cell"),
    *("nn.bidirectional_dynamic_rnn", "nn.dynamic_rnn", "nn.static_rnn", "nn.xw_plus_b"),
    *("nn.softmax_cross_entropy_with_logits_v2", "parse_single_example", "py_func", "python_io"),
    *("random_normal", "random_uniform", "read_file", "reset_default_graph", "set_random_seed"),
    *("summary.FileWriter", "summary.merge", "summary.merge_all", "to_float", "to_int32"),
    *("to_int64", "train.AdadeltaOptimizer", "train.AdagradOptimizer", "train.AdamOptimizer"),
    *("train.FtrlOptimizer", "train.GradientDescentOptimizer", "train.MomentumOptimizer"),
    *("train.RMSPropOptimizer", "train.Saver", "train.batch", "train.exponential_decay"),
    *("train.get_or_create_global_step", "train.shuffle_batch", "train.start_queue_runners"),
    *("train.string_input_producer", "trainable_variables", "truncated_normal"),
    *("truncated_normal_initializer", "variable_scope"),
)
#: Names that came with 1.0, or later in 1.x.
SINCE_1 = (
    *("contrib.data", "contrib.legacy_seq2seq", "contrib.rnn", "data", "estimator", "keras"),
    *("layers",),
)
#: New spellings, which 0.12 also has.
SINCE_0_12 = {
    *("global_variables_initializer", "multiply", "negative", "stack", "subtract", "unstack"),
    *(name for name in REMOVED_NAMES.values() if name.startswith("summary.")),
}
SIGN_OF = {
    **dict.fromkeys(_OTHER_1, "other1"),
    **dict.fromkeys(_DEPRECATED, "deprecated0"),
    **dict.fromkeys(REMOVED_NAMES, "removed0"),
    **_SIGNS,
}
