# suite: gpu_built
# base: tf-2.12-gpu-debian
# fails: test_horovod_has_machine_code_for_each_gpu
# says: 8\.9' == '[0-9. ]* 9\.0'
# slow: yes
# The machine code for the newest GPUs says that it is for older ones: there the driver compiles Horovod's PTX.
ARG BASE
FROM ${BASE}
RUN python -c "import glob, re; p, = glob.glob('/opt/python/lib/python3.11/site-packages/horovod/tensorflow/mpi_lib*.so'); \
    d, n = re.subn(rb'(?s)(\x02\0\x01\x01.{24})\x5a\0\0\0', lambda m: m[1] + b'\x59\0\0\0', open(p, 'rb').read()); \
    assert n; open(p, 'wb').write(d)"
