"""The names that registries know documents by. Sources: OCI image specification, Docker's v2.2."""

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
#: What lists the manifests of several platforms.
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (OCI_MANIFEST, DOCKER_MANIFEST)
#: The configuration of what is no image: the two bytes ``{}``.
EMPTY = "application/vnd.oci.empty.v1+json"
#: What a client of registries can read.
ACCEPT = {"Accept": ", ".join((*MANIFESTS, *INDEXES))}
