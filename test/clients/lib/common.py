"""What the programs of this folder share: rows, the exact answers, and TAP.

libpq's environment variables (PGHOST, PGPORT, PGUSER, PGDATABASE) say where the server is.
"""

import math
import random
import re
from pathlib import Path

DIMENSIONS = 24
ROWS = 3000
CATEGORIES = 10
NEAREST = 10
# Queries ask for one category, which one row in ten has.
FILTER = 3
PAGE = Path(__file__).parents[3] / 'doc' / 'frameworks.md'

_checks = 0
_failed = 0


def ok(passed, what, detail=''):
    """One check."""
    global _checks, _failed
    _checks += 1
    if not passed:
        _failed += 1
    print(f'{"ok" if passed else "not ok"} {_checks} - {what}')
    if not passed and detail:
        print('\n'.join(f'# {line}' for line in str(detail).splitlines()))


def done():
    """Print the plan, and end the program."""
    print(f'1..{_checks}')
    raise SystemExit(1 if _failed else 0)


def block(heading):
    """The code of the first block of Python below a heading of doc/frameworks.md."""
    section = PAGE.read_text().split(f'\n## {heading}\n')[1].split('\n## ')[0]
    return re.search(r'```python\n(.*?)```', section, re.S)[1]


def rows(n=ROWS, first=1, seed=1):
    """(id, category, vector) of n rows around 20 centres, the same ones every time."""
    r = random.Random(0)
    centres = [[r.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(20)]
    r.seed(seed)
    return [
        (first + i, i % CATEGORIES, [x + r.gauss(0, 0.5) for x in centres[r.randrange(20)]])
        for i in range(n)
    ]


def queries(n=10):
    """Vectors drawn as the rows are, but none of them."""
    return [vector for _, _, vector in rows(n, seed=2)]


def l2(a, b):
    return math.dist(a, b)


def inner(a, b):
    return -sum(x * y for x, y in zip(a, b))


def cosine(a, b):
    return 1 + inner(a, b) / math.sqrt(inner(a, a) * inner(b, b))


def check_answers(what, data, distance, ask):
    """Check ask(query), which returns the ids of the nearest rows of the category FILTER.

    A row counts as found when it is hardly farther than the last row of the exact answer, because
    client and server round differently.
    """
    vectors = {i: vector for i, category, vector in data if category == FILTER}
    short = wrong = found = 0
    asked = queries()
    for query in asked:
        answer = ask(query)
        truth = sorted(distance(query, vector) for vector in vectors.values())[:NEAREST]
        short += len(answer) != NEAREST or len(set(answer)) != NEAREST
        wrong += sum(i not in vectors for i in answer)
        found += sum(
            i in vectors and distance(query, vectors[i]) <= truth[-1] + 1e-3 for i in answer)
    ok(short == 0, f'{what}: each answer has {NEAREST} rows', f'{short} have not')
    ok(wrong == 0, f'{what}: all pass the filter', f'{wrong} do not')
    recall = found / (NEAREST * len(asked))
    ok(recall >= 0.99, f'{what}: they are the nearest ones', f'recall {recall}')


def check_plan(what, plan, index):
    """Check that a plan, as text, scans the index."""
    ok(f'Index Scan using {index}' in plan, f'{what}: the plan scans the index', plan)
