"""psycopg 3 and pgvector-python: rows by binary COPY, a prepared query with a filter."""

import psycopg
from pgvector import Vector
from pgvector.psycopg import register_vector

import common

with psycopg.connect(autocommit=True) as connection:
    connection.execute('CREATE EXTENSION vector')
    connection.execute('CREATE EXTENSION gpugraph')
    register_vector(connection)
    connection.execute(
        'CREATE TABLE items (id int PRIMARY KEY, category int,'
        f' embedding vector({common.DIMENSIONS}))')

    def load(rows):
        with connection.cursor() as cursor:
            with cursor.copy(
                    'COPY items (id, category, embedding) FROM STDIN WITH (FORMAT binary)') as copy:
                copy.set_types(['int4', 'int4', 'vector'])
                for i, category, vector in rows:
                    copy.write_row((i, category, Vector(vector)))

    query = (
        'SELECT id FROM items WHERE category = %s'
        f' ORDER BY embedding <-> %s LIMIT {common.NEAREST}')

    def ask(vector):
        arguments = (common.FILTER, Vector(vector))
        answer = connection.execute(query, arguments, prepare=True, binary=True)
        return [i for i, in answer]

    data = common.rows()
    load(data)
    connection.execute('CREATE INDEX items_embedding ON items USING gpugraph'
                       ' (embedding vector_l2_ops)')
    connection.execute('ANALYZE items')
    connection.execute('SET enable_seqscan = off')
    explained = connection.execute(
        'EXPLAIN ' + query, (common.FILTER, Vector(common.queries(1)[0])))
    common.check_plan('psycopg', '\n'.join(line for line, in explained), 'items_embedding')
    common.check_answers('psycopg', data, common.l2, ask)

    later = common.rows(500, first=100001, seed=3)
    load(later)
    common.check_answers('psycopg, rows that came later', data + later, common.l2, ask)

    stored = connection.execute(
        'SELECT embedding FROM items WHERE id = 1', binary=True).fetchone()[0]
    error = max(abs(x - y) for x, y in zip(stored.to_list(), data[0][2]))
    common.ok(error < 1e-5, 'psycopg: a vector comes back as it was sent', stored)

    try:
        ask([1.0, 2.0])
        common.ok(False, 'psycopg: a query of other dimensions is an error')
    except psycopg.errors.DataException as e:
        common.ok('different vector dimensions' in str(e),
                  'psycopg: a query of other dimensions is an error', e)

common.done()
