"""A registry's repository: manifests, blobs and tags by HTTP (OCI distribution specification 1.1).

Images' content goes there by way of the engine; this is for all that is small.
"""
