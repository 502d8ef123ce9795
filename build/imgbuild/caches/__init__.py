"""What other machines have built already: finished images, Horovod wheels, verdicts, bases.

BuildKit can export its own cache on the containerd store only; this one is the same on both stores,
and holds results, not steps. A cache is a folder or a repository of a registry.
"""
