"""One repository of a registry: manifests, blobs, tags and artifacts over HTTP."""
