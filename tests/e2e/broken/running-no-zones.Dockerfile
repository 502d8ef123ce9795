# suite: running
# base: tf-1.10-cpu-debian
# fails: test_time_zone_can_be_chosen\[Europe/Berlin
# says: TZ=Europe/Berlin
ARG BASE
FROM ${BASE}
RUN rm -r /usr/share/zoneinfo
