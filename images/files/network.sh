# Steps that download Python packages read this file. It sets variables for mirrors, login data and
# certificate authorities, or for a build without a network, so that the commands are always the same.
# Steps with uv have a cache mount at this place.
export UV_CACHE_DIR=/run/uv
if [ -s /run/secrets/ca ]; then
    export SSL_CERT_FILE=/run/secrets/ca PIP_CERT=/run/secrets/ca
fi
if [ -s /run/secrets/netrc ]; then
    export NETRC=/run/secrets/netrc
fi
if [ -s /run/secrets/upstreams ]; then
    index=$(sed -n 's|^python-index ||p' /run/secrets/upstreams)
    if [ -n "$index" ]; then
        export UV_DEFAULT_INDEX="$index" PIP_INDEX_URL="$index"
    fi
fi
if [ -d /run/offline/python ]; then
    export UV_OFFLINE=1 UV_NO_INDEX=1 UV_FIND_LINKS=/run/offline/python
    export PIP_NO_INDEX=1 PIP_FIND_LINKS=/run/offline/python
fi
