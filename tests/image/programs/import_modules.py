"""Import each module that is named, and say why those cannot be imported that cannot."""

import importlib
import json
import sys

errors = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        errors[name] = str(error)
print(json.dumps(errors))
