"""Ask TensorBoards in another container for their runs and their page.

Arguments: SECONDS to wait for the last of them, HOST, and the ports; the last is the one that must
answer, and by then the others have had their time.
"""

import json
import sys

from tensorboard_http import Board, asked_until


def ask(host, port):
    board = Board(host, port)
    try:
        status, _, page = board.get("")
        answer = {"runs": board.runs(), "error": None}
    except (OSError, ValueError) as error:
        return {"runs": [], "error": str(error), "page": False}
    return dict(answer, page=status == 200 and b"<title>TensorBoard" in page)


seconds, host, ports = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
last = asked_until(seconds, lambda answer: answer["runs"], lambda: ask(host, ports[-1]))
found = {port: ask(host, port) for port in ports[:-1]}
print(json.dumps(dict(found, **{ports[-1]: last})))
