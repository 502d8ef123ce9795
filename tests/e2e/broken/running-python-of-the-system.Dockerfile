# suite: running
# base: tf-2.12-cpu-debian
# fails: test_the_default_path_has_the_images_python\[python3
# says: '/usr' == '/opt/python'
# slow: yes
ARG BASE
FROM ${BASE}
RUN ln -sf /opt/python/bin/python3 /usr/local/bin/python3
