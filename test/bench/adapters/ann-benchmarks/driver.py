"""Calls module.py as ann-benchmarks does, without ann-benchmarks: ./run without a checkout.

The arguments come from config.yml, the data are made here; what is wrong ends this with status 1.
Prints TAP beside its figures.
"""

import importlib.util
import os
import sys
import time
import types
from itertools import product
from multiprocessing.pool import ThreadPool

import numpy
import psycopg
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS, QUERIES, DIMENSIONS, COUNT = 10000, 100, 48, 10
LEAST_RECALL = 0.99  # at the greatest width


class BaseANN:
    """What ann-benchmarks' class of this name offers to those derived from it."""

    def done(self):
        pass

    def get_memory_usage(self):
        return 0

    def batch_query(self, X, n):
        self.res = ThreadPool().map(lambda q: self.query(q, n), X)

    def get_batch_results(self):
        return self.res

    def get_additional(self):
        return {}


def load_module():
    """module.py as ann_benchmarks.algorithms.gpugraph.module."""
    for name in ("ann_benchmarks", "ann_benchmarks.algorithms", "ann_benchmarks.algorithms.base",
                 "ann_benchmarks.algorithms.base.module", "ann_benchmarks.algorithms.gpugraph"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    sys.modules["ann_benchmarks.algorithms.base.module"].BaseANN = BaseANN
    name = "ann_benchmarks.algorithms.gpugraph.module"
    spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, "module.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def definitions(metric):
    """(constructor, arguments, query arguments) of each run group, as ann-benchmarks has them."""
    with open(os.path.join(HERE, "config.yml")) as stream:
        for algorithm in yaml.safe_load(stream)["float"]["any"]:
            base = [metric if a == "@metric" else a for a in algorithm["base_args"]]
            for group in algorithm["run_groups"].values():
                queries = [list(q) for q in product(*group["query_args"])]
                yield algorithm["constructor"], base + group["arg_groups"], queries


def make_data(metric):
    """Clusters in 16 dimensions that are bent into DIMENSIONS; and the distances of all rows."""
    random = numpy.random.default_rng(1)
    centres = random.normal(size=(50, 16))
    plane = centres[random.integers(50, size=ROWS + QUERIES)]
    plane = plane + random.normal(size=plane.shape)
    data = (10 * numpy.tanh(plane @ random.normal(size=(16, DIMENSIONS)) / 4)).astype(numpy.float32)
    train, test = data[:ROWS], data[ROWS:]
    return train, test, distances(metric, train, test)


def distances(metric, train, test):
    if metric == "angular":
        train, test = (x / numpy.linalg.norm(x, axis=1, keepdims=True) for x in (train, test))
        return 1 - test @ train.T
    return numpy.sqrt(numpy.maximum(0, (test**2).sum(1)[:, None] - 2 * test @ train.T
                                    + (train**2).sum(1)[None, :]))


def recall(exact, results):
    """The part of the right rows that was found; any row as far as the last right one is right."""
    right = 0
    for row, found in zip(exact, results):
        assert len(found) == len(set(found)), "an answer has a row twice"
        assert len(found) == COUNT, f"an answer has {len(found)} rows"
        right += (row[found] <= numpy.partition(row, COUNT - 1)[COUNT - 1] * (1 + 1e-5)).sum()
    return right / (COUNT * len(results))


def index_scans(wanted):
    """How often the index was scanned, asked by a session of its own.

    Sessions say so when they end, which takes a moment.
    """
    parameters = {name: os.environ["ANN_BENCHMARKS_PG_" + name.upper()]
                  for name in ("host", "port", "user", "dbname")}
    scans = 0
    give_up = time.time() + 30
    while scans < wanted and time.time() < give_up:
        with psycopg.connect(**parameters) as connection:
            scans = connection.execute("SELECT idx_scan FROM pg_stat_user_indexes WHERE"
                                       " indexrelname = 'items_embedding_idx'").fetchone()[0]
        time.sleep(0.1)
    return scans


def run(module, metric):
    train, test, exact = make_data(metric)
    for constructor, arguments, query_arguments in definitions(metric):
        algorithm = getattr(module, constructor)(*arguments)
        before = algorithm.get_memory_usage()
        start = time.time()
        algorithm.fit(train)
        took = time.time() - start
        size = algorithm.get_memory_usage() - before
        assert size > 0, "the index has no size"
        print(f"{metric} {arguments}: built in {took:.2f} s, {size} kB")
        found = []
        for group in query_arguments:
            algorithm.set_query_arguments(*group)
            start = time.time()
            single = [algorithm.query(v, COUNT) for v in test]
            qps = len(test) / (time.time() - start)
            start = time.time()
            algorithm.batch_query(test, COUNT)
            batch_qps = len(test) / (time.time() - start)
            batch = algorithm.get_batch_results()
            found.append(recall(exact, single))
            print(f"  {algorithm}: recall {found[-1]:.4f}, {qps:.0f} queries/s,"
                  f" batch {batch_qps:.0f}")
            assert abs(recall(exact, batch) - found[-1]) < 0.01, "a batch is answered differently"
        print(f"  {algorithm.get_additional()}")
        algorithm.done()
        assert found[-1] >= LEAST_RECALL, f"recall {found[-1]:.4f} at the greatest width"
        assert found[-1] >= found[0], "a greater width finds less"
        wanted = 2 * len(test) * len(query_arguments)
        scans = index_scans(wanted)
        assert scans >= wanted, f"{scans} scans of the index for {wanted} queries"
        print(f"ok - {metric} {arguments}: recall {found[-1]:.4f}")


if __name__ == "__main__":
    adapter = load_module()
    for each in ("euclidean", "angular"):
        run(adapter, each)
    try:
        adapter.Gpugraph("jaccard", {})
    except ValueError:
        pass
    else:
        sys.exit("an unknown metric is not refused")
    print("ok - an unknown metric is refused")
    print("1..5")
