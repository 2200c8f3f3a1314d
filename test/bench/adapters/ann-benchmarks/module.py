"""gpugraph for ann-benchmarks.

The server is the container's own, which is started here, or one that the environment names:

ANN_BENCHMARKS_PG_START_SERVICE=false    do not start a server
ANN_BENCHMARKS_PG_USER, _PASSWORD, _DBNAME, _HOST, _PORT    how to connect; default user: ann
ANN_BENCHMARKS_PG_CONNECTIONS            connections of a batch, default four for each processor
"""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy
import pgvector.psycopg
import psycopg

from ..base.module import BaseANN

# metric -> operator class and operator
METRICS = {
    "euclidean": ("vector_l2_ops", "<->"),
    "angular": ("vector_cosine_ops", "<=>"),
}

# Vectors up to this length fit into a page and are kept in line, as pgvector's module does.
MAX_PLAIN_DIMENSIONS = 2000


def environment(name, default=None):
    return os.getenv("ANN_BENCHMARKS_PG_" + name) or default


class Gpugraph(BaseANN):
    def __init__(self, metric, options):
        if metric not in METRICS:
            raise ValueError(f"unknown metric {metric}: gpugraph has {', '.join(METRICS)}")
        self._opclass, operator = METRICS[metric]
        self._query = f"SELECT id FROM items ORDER BY embedding {operator} %b LIMIT %b"
        self._options = dict(options)
        self._width = None
        self._connections = []
        self._pool = None
        self._results = []

    # ---- connections ---------------------------------------------------------
    def _connect(self):
        parameters = {
            "user": environment("USER", "ann"),
            "password": environment("PASSWORD", "ann"),
            "dbname": environment("DBNAME", "ann"),
        }
        for name in ("host", "port"):
            if environment(name.upper()):
                parameters[name] = environment(name.upper())
        connection = psycopg.connect(autocommit=True, **parameters)
        connection.execute("CREATE EXTENSION IF NOT EXISTS gpugraph CASCADE")
        pgvector.psycopg.register_vector(connection)
        # one plan for all queries, and never a sequential scan of a small table
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute("SET enable_seqscan = off")
        connection.execute("SET jit = off")
        connection.prepare_threshold = 0
        return connection

    def _connected(self, n):
        """The first n connections, made as they are needed."""
        while len(self._connections) < n:
            connection = self._connect()
            if self._width is not None:
                self._set_width(connection)
            self._connections.append(connection)
        return self._connections[:n]

    # ---- ann-benchmarks' interface ---------------------------------------------
    def fit(self, X):
        if environment("START_SERVICE", "true").lower() not in ("false", "no", "0"):
            subprocess.run(["service", "postgresql", "start"], check=True)
        (connection,) = self._connected(1)
        dimensions = X.shape[1]
        connection.execute("DROP TABLE IF EXISTS items")
        connection.execute(f"CREATE TABLE items (id int4, embedding vector({dimensions}))")
        if dimensions <= MAX_PLAIN_DIMENSIONS:
            connection.execute("ALTER TABLE items ALTER embedding SET STORAGE PLAIN")
        with connection.cursor().copy("COPY items FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int4", "vector"])
            for i, row in enumerate(numpy.asarray(X, dtype=numpy.float32)):
                copy.write_row((i, row))
        connection.execute("VACUUM (FREEZE, ANALYZE) items")
        options = ", ".join(f"{name} = {value}" for name, value in self._options.items())
        connection.execute(
            f"CREATE INDEX items_embedding_idx ON items USING gpugraph (embedding {self._opclass})"
            + (f" WITH ({options})" if options else ""))
        # A GPU that is there has the index before the first query is timed.
        if connection.execute("SELECT 1 FROM gpugraph_stat_device WHERE state = 'up'").fetchone():
            connection.execute("SELECT gpugraph_prewarm('items_embedding_idx')")

    def _set_width(self, connection):
        connection.execute(f"SET gpugraph.itopk_size = {int(self._width)}")

    def set_query_arguments(self, itopk_size):
        self._width = itopk_size
        for connection in self._connections:
            self._set_width(connection)

    def _ask(self, connection, v, n):
        rows = connection.execute(self._query, (v, n), prepare=True, binary=True)
        return [row[0] for row in rows.fetchall()]

    def query(self, v, n):
        return self._ask(self._connections[0], numpy.asarray(v, dtype=numpy.float32), n)

    def batch_query(self, X, n):
        count = int(environment("CONNECTIONS", 4 * len(os.sched_getaffinity(0))))
        connections = self._connected(min(count, len(X)))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(count)
        queries = numpy.asarray(X, dtype=numpy.float32)
        self._results = [None] * len(queries)

        def work(first):
            for i in range(first, len(queries), len(connections)):
                self._results[i] = self._ask(connections[first], queries[i], n)

        list(self._pool.map(work, range(len(connections))))

    def get_batch_results(self):
        return self._results

    def get_memory_usage(self):
        """Size of the index in kB; ann-benchmarks takes the difference that fit() makes."""
        if not self._connections:
            return 0
        size = "SELECT coalesce(pg_relation_size(to_regclass('items_embedding_idx')), 0) / 1024"
        return self._connections[0].execute(size).fetchone()[0]

    def get_additional(self):
        """Who answered: queries_gpu and queries_cpu of gpugraph_stat_index so far."""
        counts = self._connections[0].execute(
            "SELECT queries_gpu, queries_cpu FROM gpugraph_stat_index"
            " WHERE relid = 'items_embedding_idx'::regclass").fetchone()
        return {"queries_gpu": counts[0], "queries_cpu": counts[1]} if counts else {}

    def done(self):
        if self._pool is not None:
            self._pool.shutdown()
        for connection in self._connections:
            connection.close()
        self._connections = []

    def __str__(self):
        options = "".join(f"{name}={value}, " for name, value in self._options.items())
        return f"Gpugraph({options}itopk_size={self._width})"
