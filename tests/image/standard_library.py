"""The modules of Python's standard library, and those that an image may be without."""

from __future__ import annotations

#: The public ones of Python 3.6 to 3.11 on Linux, with a part of each package that asks for more
#: than the package does. _hashlib is OpenSSL's half of hashlib.
_NAMES = """
_decimal _hashlib abc aifc argparse array ast asynchat asyncio asyncore atexit audioop base64
bdb binascii binhex bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs
codeop collections colorsys compileall concurrent concurrent.futures configparser contextlib
copy copyreg crypt csv ctypes ctypes.util curses curses.panel datetime dbm dbm.dumb dbm.gnu
dbm.ndbm decimal difflib dis distutils distutils.core doctest dummy_threading email
email.mime.text encodings encodings.idna ensurepip enum errno faulthandler fcntl filecmp
fileinput fnmatch formatter fractions ftplib functools gc getopt getpass gettext glob grp gzip
hashlib heapq hmac html http http.cookiejar http.server imaplib imghdr imp importlib
importlib.util inspect io ipaddress itertools json json.tool keyword linecache locale logging
logging.handlers lzma mailbox mailcap marshal math mimetypes mmap modulefinder multiprocessing
multiprocessing.pool netrc nis nntplib ntpath numbers operator optparse os os.path parser
pathlib pdb pickle pickletools pipes pkgutil platform plistlib poplib posix posixpath pprint
profile pstats pty pwd py_compile pyclbr pydoc pyexpat queue quopri random re readline reprlib
resource rlcompleter runpy sched secrets select selectors shelve shlex shutil signal site smtpd
smtplib sndhdr socket socketserver spwd sqlite3 sqlite3.dbapi2 ssl stat statistics string
stringprep struct subprocess sunau symbol symtable sys sysconfig syslog tabnanny tarfile
telnetlib tempfile termios textwrap threading time timeit tkinter token tokenize trace traceback
tracemalloc tty turtle types typing unicodedata unittest unittest.mock urllib urllib.request uu
uuid venv warnings wave weakref webbrowser wsgiref wsgiref.simple_server xdrlib xml
xml.dom.minidom xml.etree.ElementTree xml.sax xmlrpc xmlrpc.server zipapp zipfile zipimport zlib
"""
#: The first 3.x with a module, and the first without it. Source: "What's New in Python".
_SINCE = {
    "contextvars": 7,
    "dataclasses": 7,
    "importlib.resources": 7,
    "importlib.metadata": 8,
    "graphlib": 9,
    "zoneinfo": 9,
    "tomllib": 11,
}
_GONE = {"dummy_threading": 9, "formatter": 10, "parser": 10, "symbol": 10, "binhex": 11}
#: What users read about in docs/images.md: of Python that was compiled, or is Anaconda's.
LEFT_OUT = frozenset({"dbm.gnu", "dbm.ndbm", "tkinter", "turtle"})
#: Not in a Python 3.6 compiled where OpenSSL is 3: on Debian 12, and so in stand-ins for Ubuntu.
OPENSSLS = frozenset({"_hashlib"})
#: Stand-ins for Anaconda's Python leave it out, too.
OF_ANACONDA = frozenset({"nis"})
NOT_IN_DEBIANS = frozenset({"dbm.gnu", "ensurepip", "tkinter", "turtle"})
#: Debian's own Python is this one.
DEBIANS = 11


def modules(python: str) -> list[str]:
    """Return the modules of a release of Python 3."""
    minor = int(python.split(".")[1])
    early = [name for name in _NAMES.split() if minor < _GONE.get(name, minor + 1)]
    return early + [name for name, since in _SINCE.items() if minor >= since]


def may_be_missing(python: str, os_id: str, *, standin: bool) -> frozenset[str]:
    """Return what the Python of this release may be without, in an image of this distribution."""
    minor = int(python.split(".")[1])
    if minor == DEBIANS:
        return NOT_IN_DEBIANS
    missing = LEFT_OUT if os_id == "debian" else LEFT_OUT | OF_ANACONDA
    return missing | OPENSSLS if minor == 6 and (os_id == "debian" or standin) else missing
