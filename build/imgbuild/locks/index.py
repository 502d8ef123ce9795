"""The Python package index as uv is told of it."""

import os
from collections.abc import Mapping

from imgbuild.downloads.sites import Sites

#: The upstream of the matrix that stands for the Python package index.
INDEX = "python-index"


def index_environment(sites: Sites) -> Mapping[str, str]:
    """Return the environment in which uv asks the index that this machine is given.

    Without a mirror it is uv's own: its configuration files and variables decide.
    """
    found = {
        "UV_DEFAULT_INDEX": sites.mirrors.get(INDEX),
        "NETRC": str(sites.netrc) if sites.netrc else None,
        "SSL_CERT_FILE": str(sites.ca_bundle) if sites.ca_bundle else None,
    }
    return {**os.environ, **{name: value for name, value in found.items() if value}}
