"""Ask TensorBoards that serve in another container for their runs and their page.

Arguments: HOST, and the ports. A server that answers is given some seconds to load its runs; one
that refuses the connection will always do so, while any other fault may be that of a busy machine.
"""

import json
import sys

from commands import give_up
from patience import allowed
from tensorboard_http import Board, asked_until

SECONDS_TO_LOAD = allowed(60)


def ask(host, port):
    board = Board(host, port)
    answer = {"runs": [], "error": None, "page": False, "refused": False}
    try:
        status, _, page = board.get("")
        answer["runs"] = board.runs()
    except (OSError, ValueError) as error:
        refused = isinstance(getattr(error, "reason", None), ConnectionRefusedError)
        return dict(answer, error=str(error), refused=refused)
    return dict(answer, page=status == 200 and b"<title>TensorBoard" in page)


def settled(answer):
    return answer["runs"] or answer["refused"]


host, ports = sys.argv[1], sys.argv[2:]
found = {port: asked_until(SECONDS_TO_LOAD, settled, lambda: ask(host, port)) for port in ports}
late = [port for port in ports if not settled(found[port])]
if late:
    words = "the TensorBoard at port {} showed no run within {} s: {}"
    give_up(words.format(late[0], SECONDS_TO_LOAD, found[late[0]]["error"]))
print(json.dumps(found))
