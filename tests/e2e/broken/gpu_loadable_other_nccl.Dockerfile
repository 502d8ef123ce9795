# suite: gpu_loadable
# base: tf-2.12-gpu-debian
# fails: test_library_says_the_pinned_version\[nccl\]
# says: nccl: pinned 2\.16\.5, it says .*21606
# slow: yes
# Another NCCL lies under the name of the pinned one: the constant that ncclGetVersion writes is 21606.
ARG BASE
FROM ${BASE}
RUN python -c "p = '/opt/python/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2'; d = open(p, 'rb').read(); \
    assert d.count(bytes.fromhex('c70765540000')) == 1; open(p, 'wb').write(d.replace(bytes.fromhex('c70765540000'), bytes.fromhex('c70766540000')))"
