"""VectorDBBench measures gpugraph and pgvector's HNSW on a custom data set: see run.

usage: bench.py FOLDER METRIC

FOLDER has train.parquet (id, emb), test.parquet (id, emb) and neighbors.parquet (id, neighbors_id),
as VectorDBBench's own data sets have them. Without train.parquet, small ones are drawn into it.
Ends with status 1 when recall is below LEAST_RECALL on those.
"""

import os
import sys
import time
from pathlib import Path

import numpy
import polars
from gpugraph_config import GpugraphConfig
from vectordb_bench.backend.cases import CaseType
from vectordb_bench.backend.clients import DB
from vectordb_bench.backend.clients.api import MetricType
from vectordb_bench.backend.clients.pgvector.config import PgVectorConfig, PgVectorHNSWConfig
from vectordb_bench.interface import BenchMarkRunner
from vectordb_bench.models import (
    CaseConfig, ConcurrencySearchConfig, TaskConfig, TaskStage)

ROWS, QUERIES, DIMENSIONS, K = 5000, 100, 32, 10
LEAST_RECALL = 0.98
CLIENTS = [int(n) for n in os.environ.get('CLIENTS', '1,2').split(',')]
SECONDS = int(os.environ.get('SECONDS_EACH', '3'))


def draw(folder):
    """Rows around 50 centres, queries likewise, and the exact neighbours by L2."""
    random = numpy.random.default_rng(1)
    centres = random.normal(size=(50, DIMENSIONS))
    rows, queries = (
        (centres[random.integers(50, size=n)] + random.normal(size=(n, DIMENSIONS))).astype('f4')
        for n in (ROWS, QUERIES))
    near = [numpy.argsort(((rows - q) ** 2).sum(1), kind='stable')[:100] for q in queries]
    for name, column, values in (('train', 'emb', rows), ('test', 'emb', queries),
                                 ('neighbors', 'neighbors_id', numpy.array(near))):
        polars.DataFrame({'id': range(len(values)), column: values.tolist()}).write_parquet(
            folder / f'{name}.parquet')


def case(folder, metric):
    train = polars.read_parquet(folder / 'train.parquet')
    return {
        'name': folder.name, 'description': folder.name, 'load_timeout': 36000,
        'optimize_timeout': 36000,
        'dataset_config': {
            'name': folder.name, 'dir': str(folder), 'size': len(train),
            'dim': len(train['emb'][0]), 'metric_type': metric.value}}


def measure(label, index, wanted):
    """One task of VectorDBBench, from an empty table on; its metrics."""
    connection = PgVectorConfig(
        db_label=label, user_name=os.environ['PGUSER'], password='none', host=os.environ['PGHOST'],
        port=int(os.environ['PGPORT']), db_name=os.environ['PGDATABASE'])
    task = TaskConfig(
        db=DB.PgVector, db_config=connection, db_case_config=index,
        case_config=CaseConfig(
            case_id=CaseType.PerformanceCustomDataset, custom_case=wanted, k=K,
            concurrency_search_config=ConcurrencySearchConfig(
                num_concurrency=CLIENTS, concurrency_duration=SECONDS)),
        stages=[TaskStage.DROP_OLD, TaskStage.LOAD, TaskStage.SEARCH_SERIAL,
                TaskStage.SEARCH_CONCURRENT])
    runner = BenchMarkRunner()
    runner.run([task], label)
    while runner.has_running():
        time.sleep(1)
    if runner.latest_error:
        sys.exit(f'{label}: {runner.latest_error}')
    [result] = [r for r in runner.get_results() if r.task_label == label]
    return result.results[0].metrics


def main():
    folder, metric = Path(sys.argv[1]), MetricType[sys.argv[2].upper()]
    drawn = not (folder / 'train.parquet').exists()
    if drawn:
        draw(folder)
    wanted = case(folder, metric)
    print('index            recall  p99 ms  queries/s  load and build s')
    for label, index in (
            ('gpugraph', GpugraphConfig(metric_type=metric)),
            ('hnsw', PgVectorHNSWConfig(metric_type=metric, m=16, ef_construction=64,
                                        ef_search=100))):
        m = measure(label, index, wanted)
        print(f'{label:16} {m.recall:.4f} {m.serial_latency_p99:7.2f} {m.qps:10.0f}'
              f' {m.load_duration:10.1f}', flush=True)
        if drawn and m.recall < LEAST_RECALL:
            sys.exit(f'{label}: recall is below {LEAST_RECALL}')
        print(f'ok - {label}: loaded, built, searched by one client and by several')
    print('1..2')


if __name__ == '__main__':
    main()
