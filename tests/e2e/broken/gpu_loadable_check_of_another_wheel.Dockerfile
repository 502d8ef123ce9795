# suite: gpu_loadable
# base: tf-2.12-gpu-debian
# fails: test_the_check_at_start_knows_the_image
# says: contradict each other: .*compute_80
# slow: yes
# The facts of the check at start are those of a wheel that has no code for Ampere.
ARG BASE
FROM ${BASE}
RUN python -c "import json; p = '/opt/imgbuild/gpu.json'; d = json.load(open(p)); d['ptx'] = ['7.0']; d['native'] = ['7.0']; \
    json.dump(d, open(p, 'w'))"
