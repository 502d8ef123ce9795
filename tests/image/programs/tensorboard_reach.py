"""Ask TensorBoards that serve in another container for their runs and their page.

Arguments: HOST, and the ports. A server that answers is given some seconds to load its runs.
"""

import json
import sys

from tensorboard_http import Board, asked_until

SECONDS_TO_LOAD = 20


def ask(host, port):
    board = Board(host, port)
    try:
        status, _, page = board.get("")
        answer = {"runs": board.runs(), "error": None}
    except (OSError, ValueError) as error:
        return {"runs": [], "error": str(error), "page": False}
    return dict(answer, page=status == 200 and b"<title>TensorBoard" in page)


def settled(answer):
    return answer["runs"] or answer["error"]


host, ports = sys.argv[1], sys.argv[2:]
found = {port: asked_until(SECONDS_TO_LOAD, settled, lambda: ask(host, port)) for port in ports}
print(json.dumps(found))
