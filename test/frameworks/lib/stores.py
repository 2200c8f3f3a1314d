"""What the programs of this folder share, beside common.py of test/clients.

A text is "row N" or "query N", with words behind it, and its embedding is the vector of that row
or query in common.py: no model, no network. The server's plans are read from its log, where
auto_explain puts them: SERVER_LOG names the file.
"""

import os
import time

import psycopg

import common

ROWS = common.rows()
QUERIES = common.queries()
WORDS = ['amber', 'birch', 'cedar', 'dune', 'ember', 'fjord', 'grove', 'heath', 'inlet', 'juniper']
HOST, PORT, DATABASE = os.environ['PGHOST'], os.environ['PGPORT'], os.environ['PGDATABASE']


def vector(text):
    """The embedding of a text."""
    kind, number = text.split()[:2]
    return ROWS[int(number) - 1][2] if kind == 'row' else QUERIES[int(number)]


def text(row):
    """The text of a row: rows of one category share a word."""
    i, category, _ = row
    return f'row {i} {WORDS[category]}'


def number(text):
    """The row that a text is of."""
    return int(text.split()[1])


def ask(search):
    """A function for common.check_answers: search(text) returns texts."""
    return lambda q: [number(t) for t in search(f'query {QUERIES.index(q)}')]


def url(driver):
    return f'postgresql+{driver}://postgres@/{DATABASE}?host={HOST}&port={PORT}'


def execute(statement):
    with psycopg.connect(autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else None


_log = open(os.environ['SERVER_LOG'], encoding='utf-8')


def plans():
    """What the server has logged since the last call."""
    return _log.read()


def check_plans(what, index, search):
    """Check that what search() asks scans the index; returns the plans."""
    plans()
    search()
    said = ''
    for _ in range(50):  # a backend logs a plan before it answers, the log's reader may lag
        said += plans()
        if index in said:
            break
        time.sleep(0.1)
    common.check_plan(what, said, index)
    return said


def prepare():
    """The extensions, and auto_explain in every session that begins now."""
    execute('CREATE EXTENSION vector')
    execute('CREATE EXTENSION gpugraph')
    execute(f"ALTER DATABASE {DATABASE} SET session_preload_libraries = 'auto_explain'")
    execute(f'ALTER DATABASE {DATABASE} SET auto_explain.log_min_duration = 0')
    plans()
