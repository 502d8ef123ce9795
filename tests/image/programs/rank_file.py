"""The file in which a rank of a job leaves its result: what a launcher prints of several is mixed."""

import json
import os


def write(folder, rank, result):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "rank-{}.json".format(rank)), "w") as stream:
        stream.write(json.dumps(result) + "\n")
