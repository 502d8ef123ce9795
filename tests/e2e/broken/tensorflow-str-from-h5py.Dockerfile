# suite: tensorflow
# base: tf-1.10-cpu-debian
# fails: test_saved_model_predicts_the_same_in_a_new_process
# says: 'str' object has no attribute 'decode'
ARG BASE
FROM ${BASE}
# What h5py 3 does: attributes come as text, where this Keras decodes bytes.
RUN cat >> /opt/python/lib/python3.6/site-packages/h5py/__init__.py <<'EOT'


def _text(read=AttributeManager.__getitem__):
    def get(self, name):
        value = read(self, name)
        return value.decode() if isinstance(value, bytes) else value
    AttributeManager.__getitem__ = get


_text()
EOT
