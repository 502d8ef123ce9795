"""Stand-in upstreams: what the Dockerfiles of the ubuntu stack download, for places without it.

Test-only. Each module makes one upstream as a folder with that site's own paths; `server.py`
serves them. What is real and what is not: `README.md` in this folder.
"""
