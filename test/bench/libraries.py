"""The engine and libraries over the same rows, one thread, by turns: see test/bench/libraries.

usage: libraries.py ask SET_DIR ENGINE BUILD_THREADS SECONDS ROUNDS WIDTHS TSV NAME ...
       libraries.py work SET_DIR BUILD_THREADS NAME

ENGINE is the program measure_turns. Each NAME is asked in a process of its own, which builds the
index and then waits: `work` for a library, ENGINE for gpugraph and gpugraph+CODES. Both talk as
the head of test/engine/measure_turns.c says.
"""

import ctypes
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy

K = 10
DEGREE = 32  # edges of a row in every graph
CANDIDATES = int(os.environ.get('CANDIDATES', 200))  # that a build looks at for them
LEVELS = (.9, .95, .99, .995)  # recalls at which rates are read off


class Set:
    def __init__(self, folder):
        folder = Path(folder)
        meta = dict(line.split('=', 1) for line in (folder / 'meta').read_text().splitlines())
        self.dim, self.metric = int(meta['dim']), meta['metric']
        self.base, self.query = folder / 'base.f32', folder / 'query.f32'
        self.truth = numpy.fromfile(folder / 'gt.i32', numpy.int32).reshape(-1, 100)
        self.far = numpy.fromfile(folder / 'gd.f64').reshape(-1, 100)

    def rows(self, path):
        """Under cosine they get unit length, so that inner products rank them."""
        rows = numpy.fromfile(path, numpy.float32).reshape(-1, self.dim)
        if self.metric == 'cos':
            rows /= numpy.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def recall(self, ids):
        """Right is one of the K nearest, or as near as the last of them."""
        right = 0
        for truth, far, found in zip(self.truth, self.far, ids):
            right += len(set(truth[far <= far[K - 1]]) & set(found))
        return right / (len(ids) * K)


# ---- libraries: an object has the index built, and search(width, queries) ---------------------

class Hnswlib:
    def __init__(self, data, rows, threads):
        import hnswlib
        self.index = hnswlib.Index('l2' if data.metric == 'l2' else 'ip', data.dim)
        self.index.init_index(len(rows), M=DEGREE // 2, ef_construction=CANDIDATES)
        self.index.add_items(rows, num_threads=threads)

    def search(self, width, queries):
        self.index.set_ef(width)
        return self.index.knn_query(queries, K, num_threads=1)[0], None


class Faiss:
    def __init__(self, data, rows, threads):
        import faiss
        self.faiss = faiss
        faiss.omp_set_num_threads(threads)
        self.index = faiss.IndexHNSWFlat(
            data.dim, DEGREE // 2,
            faiss.METRIC_L2 if data.metric == 'l2' else faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = CANDIDATES
        self.index.add(rows)
        faiss.omp_set_num_threads(1)

    def search(self, width, queries):
        self.index.hnsw.efSearch = width
        before = self.faiss.cvar.hnsw_stats.ndis
        ids = self.index.search(queries, K)[1]
        return ids, (self.faiss.cvar.hnsw_stats.ndis - before) / len(queries)


class Usearch:
    def __init__(self, data, rows, threads):
        from usearch.index import Index
        self.index = Index(ndim=data.dim, metric='l2sq' if data.metric == 'l2' else 'ip',
                           dtype='f32', connectivity=DEGREE // 2, expansion_add=CANDIDATES)
        self.index.add(numpy.arange(len(rows)), rows, threads=threads)

    def search(self, width, queries):
        self.index.expansion_search = width
        found = self.index.search(queries, K, threads=1)
        return found.keys, found.computed_distances / len(queries)


class Rabitqlib:
    """SymphonyQG: one bit a dimension of each neighbour, beside the list; rows of what is near."""

    def __init__(self, data, rows, threads):
        import rabitqlib
        self.index = rabitqlib.SymqgIndex(data.dim, DEGREE,
                                          metric='l2' if data.metric == 'l2' else 'ip')
        self.index.build(rows, CANDIDATES, num_threads=threads)

    def search(self, width, queries):
        return self.index.search(queries, K, width, num_threads=1)[0], None


class Svs:
    """Vamana; with bits of LVQ, (4, 8) as 4 bits that a walk measures and 8 for what it found."""

    def __init__(self, data, rows, threads, bits=None):
        import svs
        self.svs = svs
        distance = svs.DistanceType.L2 if data.metric == 'l2' else svs.DistanceType.MIP
        parameters = svs.VamanaBuildParameters(alpha=1.2 if data.metric == 'l2' else .95,
                                               graph_max_degree=DEGREE, window_size=CANDIDATES)
        if bits is None:
            self.index = svs.Vamana.build(parameters, rows, distance, num_threads=threads)
        else:
            with tempfile.TemporaryDirectory() as folder:
                svs.write_vecs(rows, folder + '/rows.fvecs')
                loader = svs.LVQLoader(svs.VectorDataLoader(folder + '/rows.fvecs', svs.float32,
                                                            data.dim),
                                       primary=bits[0], residual=bits[1])
                self.index = svs.Vamana.build(parameters, loader, distance, num_threads=threads)
        self.index.num_threads = 1

    def search(self, width, queries):
        self.index.search_window_size = width
        return self.index.search(queries, K)[0], None


LIBRARIES = {
    'hnswlib': Hnswlib,
    'faiss': Faiss,
    'usearch': Usearch,
    'rabitqlib': Rabitqlib,
    'svs': Svs,
    'svs-lvq8': lambda *rest: Svs(*rest, bits=(8, 0)),
    'svs-lvq4x8': lambda *rest: Svs(*rest, bits=(4, 8)),
}


def work(folder, threads, name):
    data = Set(folder)
    queries = data.rows(data.query)
    rows = data.rows(data.base)
    began, began_cpu = time.monotonic(), time.process_time()
    library = LIBRARIES[name](data, rows, int(threads))
    print(f'built {time.monotonic() - began:.2f} {time.process_time() - began_cpu:.2f}', flush=True)
    del rows  # all of them have copies
    ctypes.CDLL(None).malloc_trim(0)
    for line in sys.stdin:
        width, seconds, path = line.split()
        library.search(int(width), queries[:100])
        count, began = 0, time.process_time()
        while count == 0 or time.process_time() - began < float(seconds):
            ids, distances = library.search(int(width), queries)
            count += len(queries)
        took = time.process_time() - began
        ids.astype(numpy.int32).tofile(path)
        print(f'asked {count / took:.2f} {"-" if distances is None else f"{distances:.1f}"}',
              flush=True)


# ---- asking --------------------------------------------------------------------------------------

class Worker:
    """A process with an index; error says why there is none."""

    def __init__(self, name, command):
        self.name, self.error = name, None
        self.log = tempfile.TemporaryFile('w+')
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
            env=dict(os.environ, OMP_WAIT_POLICY='passive', OPENBLAS_NUM_THREADS='1'))
        self.points = {}  # by width: recall, distances, rates of each round
        built = self.read('built')
        if self.error is None:
            self.built, self.built_cpu = map(float, built)

    def read(self, word):
        """What follows the word in the next line that begins with it."""
        for line in self.process.stdout:
            if line.split(' ')[0] == word:
                return line.split()[1:]
        self.process.wait()
        self.log.seek(0)
        said = [line.strip() for line in self.log if line.strip()]
        self.error = said[-1] if said else f'ended with status {self.process.returncode}'
        return None

    def pin(self, processor):
        """All of its threads, so that the one that searches is among them."""
        self.memory = sum(
            int(line.split()[1])
            for line in Path(f'/proc/{self.process.pid}/status').read_text().split('\n')
            if line.startswith(('RssAnon:', 'RssShmem:')))
        for task in os.listdir(f'/proc/{self.process.pid}/task'):
            os.sched_setaffinity(int(task), {processor})

    def ask(self, data, width, seconds, path):
        print(width, seconds, path, file=self.process.stdin, flush=True)
        answer = self.read('asked')
        if answer is None:
            return
        if width not in self.points:
            ids = numpy.fromfile(path, numpy.int32).reshape(-1, K)
            distances = None if answer[1] == '-' else float(answer[1])
            self.points[width] = (data.recall(ids), distances, [])
        self.points[width][2].append(float(answer[0]))

    def rate_at(self, level):
        """Linear in log rate over log(1 - recall) between the points around it. That of the
        shortest list if this has the recall, None if the longest has not."""
        points = sorted((recall, median(rates)) for recall, _, rates in self.points.values())
        if points[0][0] >= level:
            return points[0][1]
        for (low, slow), (high, fast) in zip(points, points[1:]):
            if low <= level < high:
                share = 1. if high >= 1 else (
                    math.log((1 - low) / (1 - level)) / math.log((1 - low) / (1 - high)))
                return math.exp(math.log(slow) + share * (math.log(fast) - math.log(slow)))
        return None


def command_of(name, folder, data, engine, threads, graph):
    if name.split('+')[0] != 'gpugraph':
        return [sys.executable, __file__, 'work', folder, threads, name]
    metric = 'cosine' if data.metric == 'cos' else data.metric
    codes = name.split('+')[1] if '+' in name else 'none'
    return [engine, data.base, data.query, str(data.dim), metric, codes, threads, graph]


def report(workers, tsv):
    first = workers[0]
    print('\n| index | build s, of processors | MiB | distances of a query at .95, .99 |'
          + ''.join(f' q/s at {level} |' for level in LEVELS))
    print('|:--|--:|--:|:--|' + '--:|' * len(LEVELS))
    for worker in workers:
        cells = []
        for level in LEVELS:
            rate, other = worker.rate_at(level), first.rate_at(level)
            cells.append('-' if rate is None else f'{rate:,.0f}'
                         + (f' ({rate / other:.2f})' if other else ''))
        known = [str(next((f'{d:.0f}' for r, d, _ in sorted(worker.points.values())
                           if r >= level and d is not None), '-')) for level in (.95, .99)]
        print(f'| {worker.name} | {worker.built:.1f}, {worker.built_cpu:.1f} '
              f'| {worker.memory / 1024:,.0f} | {", ".join(known)} | {" | ".join(cells)} |')
    print(f'\nIn brackets: times {first.name}. Points: width, recall@{K}, queries per second\n')
    for worker in workers:
        print(f'{worker.name}: ' + '; '.join(
            f'{width}, {recall:.4f}, {median(rates):,.0f}'
            for width, (recall, _, rates) in worker.points.items()))
    with open(tsv, 'a') as file:
        for worker in workers:
            print('index', worker.name, worker.built, worker.built_cpu, worker.memory, sep='\t',
                  file=file)
            for width, (recall, distances, rates) in worker.points.items():
                print('point', worker.name, width, f'{recall:.5f}', distances,
                      *(f'{rate:.1f}' for rate in rates), sep='\t', file=file)


def start_all(folder, data, engine, threads, names, scratch):
    workers = []
    for name in names:
        worker = Worker(name, command_of(name, folder, data, engine, threads, scratch + '/graph'))
        if worker.error is None:
            workers.append(worker)
            print(f'{name}: built in {worker.built:.1f} s', flush=True)
        else:
            print(f'{name}: not measured: {worker.error}', flush=True)
    return workers


def ask(folder, engine, threads, seconds, rounds, widths, tsv, *names):
    data = Set(folder)
    widths = [int(width) for width in widths.split(',')]
    with tempfile.TemporaryDirectory() as scratch:
        workers = start_all(folder, data, engine, threads, names, scratch)
        processor = max(os.sched_getaffinity(0))
        for worker in workers:
            worker.pin(processor)
        print(f'searching on processor {processor}', flush=True)
        for _ in range(int(rounds)):
            for width in widths:
                for worker in workers:
                    if worker.error is None:
                        worker.ask(data, width, seconds, scratch + '/ids')
    for worker in workers:
        if worker.error is not None:
            print(f'{worker.name}: ended while it searched: {worker.error}')
        worker.process.stdin.close()
    report([worker for worker in workers if worker.points], tsv)
    check(workers, names)


def check(workers, names):
    """TAP: what was not measured is skipped, but for the engine."""
    for number, name in enumerate(names, 1):
        worker = next((worker for worker in workers if worker.name == name), None)
        if worker is None and not name.startswith('gpugraph'):
            print(f'ok {number} - {name} # SKIP it was not measured')
            continue
        found = worker is not None and worker.error is None and max(
            recall for recall, _, _ in worker.points.values()) >= .9
        print(f'{"ok" if found else "not ok"} {number} - {name} finds .9 of the nearest')
    print(f'1..{len(names)}')


{'ask': ask, 'work': work}[sys.argv[1]](*sys.argv[2:])
