"""``imgbuild audit``: the pins of the matrix against the artifacts themselves.

Nothing is executed and hardly anything downloaded: what a wheel loads, what compiled it and which
C++ library it speaks is read out of some megabytes of it, by HTTP range requests.
"""
