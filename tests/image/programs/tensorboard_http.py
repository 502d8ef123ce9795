"""Ask a TensorBoard over HTTP what it shows: its own routes, whose answers are handed on as is."""

import base64
import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request

from patience import allowed

SECONDS_TO_ANSWER = allowed(20)
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Board:
    """A TensorBoard at HOST:PORT."""

    def __init__(self, host, port):
        self.url = "http://{}:{}/".format(host, port)

    def get(self, path, **query):
        """Return status, content type and body, of whatever answer there is."""
        url = "{}{}?{}".format(self.url, path, urllib.parse.urlencode(query))
        try:
            response = direct.open(url, timeout=SECONDS_TO_ANSWER)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            return response.getcode(), response.headers.get("Content-Type", ""), response.read()

    def data(self, path, **query):
        """Return the body of a route of data; anything but 200 is a ValueError with its words."""
        status, _, body = self.get("data/" + path, **query)
        if status != 200:
            raise ValueError("{}: {} {}".format(path, status, body[:300]))
        return body

    def json(self, path, **query):
        return json.loads(self.data(path, **query).decode("utf-8"))

    def runs(self):
        return self.json("runs")

    def each_tag(self, plugin, route):
        """Return the rows of every tag of a plugin, by run and tag."""
        tags = self.json("plugin/{}/tags".format(plugin))
        path = "plugin/{}/{}".format(plugin, route)
        return {
            run: {tag: self.json(path, run=run, tag=tag) for tag in found}
            for run, found in tags.items()
            if found
        }

    def scalars(self):
        """Return step and value of each point; the wall time is left out."""
        found = self.each_tag("scalars", "scalars")
        return {
            run: {tag: [row[1:] for row in rows] for tag, rows in tags.items()}
            for run, tags in found.items()
        }

    def images(self):
        found = self.each_tag("images", "images")
        return {
            run: {tag: [self.image(row) for row in rows] for tag, rows in tags.items()}
            for run, tags in found.items()
        }

    def image(self, row):
        path = "data/plugin/images/individualImage?" + row["query"]
        with direct.open(self.url + path, timeout=SECONDS_TO_ANSWER) as response:
            body = response.read()
        return {"type": response.headers["Content-Type"], "body": encoded(body)}

    def graphs(self, listing):
        """Return each run's graphs as text; LISTING is the route that lists them."""
        found = self.json("plugin/graphs/" + listing)
        return {run: self.graph(run, found) for run in found}

    def graph(self, run, listed):
        tags = listed[run]["tags"] if isinstance(listed, dict) else {}
        tag = dict(tag=min(tags)) if tags else {}
        graph = self.data("plugin/graphs/graph", run=run, conceptual="false", **tag)
        return graph.decode("utf-8")


def encoded(body):
    return base64.b64encode(body).decode("ascii")


def points_in(scalars):
    return sum(len(points) for tags in scalars.values() for points in tags.values())


def is_late(error):
    """Return whether an answer did not come in time."""
    return isinstance(getattr(error, "reason", error), socket.timeout)


def asked_until(seconds, right, ask):
    """Ask again and again until the answer is RIGHT or time is up, and return the last answer."""
    deadline = time.time() + seconds
    answer = ask()
    while not right(answer) and time.time() < deadline:
        time.sleep(0.1)
        answer = ask()
    return answer
