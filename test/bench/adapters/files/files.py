"""Small sets of vectors as other benchmarks keep them, and whether test/bench/real read them right.

usage: files.py write FOLDER; files.py check FOLDER
"""

import sys
from pathlib import Path

import h5py
import numpy
import pyarrow
from pyarrow import parquet

ROWS, QUERIES, DIMENSIONS = 400, 20, 12
SETS = {'angular': 'cos', 'euclidean': 'l2', 'passages': 'ip'}


def vectors(name):
    """Rows and queries of a set."""
    draw = numpy.random.default_rng(list(SETS).index(name))
    return [draw.normal(size=(n, DIMENSIONS)).astype('f4') for n in (ROWS, QUERIES)]


def write(folder):
    for name in ('angular', 'euclidean'):
        rows, asked = vectors(name)
        with h5py.File(folder / f'{name}.hdf5', 'w') as file:
            file['train'], file['test'] = rows, asked
            file.attrs['distance'] = name
    (folder / 'passages').mkdir()
    for part, of in zip(('train', 'test'), vectors('passages')):
        table = pyarrow.table({'id': range(len(of)), 'emb': list(of)})
        parquet.write_table(table, folder / 'passages' / f'{part}.parquet')


def nearest(name):
    """The nearest row of each query."""
    rows, asked = (of.astype('f8') for of in vectors(name))
    if SETS[name] == 'cos':
        rows /= numpy.linalg.norm(rows, axis=1, keepdims=True)
    lengths = (rows ** 2).sum(1) if SETS[name] == 'l2' else 0
    return numpy.argmin(lengths - 2 * asked @ rows.T, axis=1)


def check(folder):
    number = 0

    def ok(true, what):
        nonlocal number
        number += 1
        print('ok' if true else 'not ok', number, '-', what)

    for name, metric in SETS.items():
        made = folder / 'sets' / name
        meta = dict(line.split('=', 1) for line in (made / 'meta').read_text().splitlines())
        ok([meta[key] for key in ('n', 'dim', 'metric')] == [str(ROWS), str(DIMENSIONS), metric],
           f'{name}: {ROWS} x {DIMENSIONS}, {metric}')
        base = numpy.fromfile(made / 'base.f32', 'f4').reshape(-1, DIMENSIONS)
        ok(numpy.array_equal(base, vectors(name)[0]), f'{name}: its rows')
        found = numpy.fromfile(made / 'gt.i32', 'i4').reshape(QUERIES, -1)
        ok(numpy.array_equal(found[:, 0], nearest(name)), f'{name}: the nearest of each query')
    print(f'1..{number}')


{'write': write, 'check': check}[sys.argv[1]](Path(sys.argv[2]))
