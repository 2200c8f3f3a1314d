"""asyncpg and pgvector-python: halfvecs by binary COPY, queries from several connections."""

import asyncio

import asyncpg
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

import common

QUERY = (
    'SELECT id FROM items WHERE category = $1'
    f' ORDER BY embedding <=> $2 LIMIT {common.NEAREST}')


async def prepare(connection):
    await register_vector(connection)


async def main():
    connection = await asyncpg.connect()
    await connection.execute('CREATE EXTENSION vector')
    await connection.execute('CREATE EXTENSION gpugraph')
    await connection.execute(
        'CREATE TABLE items (id int PRIMARY KEY, category int,'
        f' embedding halfvec({common.DIMENSIONS}))')
    await connection.close()

    settings = {'enable_seqscan': 'off'}
    async with asyncpg.create_pool(
            min_size=4, max_size=4, init=prepare, server_settings=settings) as pool:
        # The index is there before the rows, so it holds them as inserts first, and built later.
        await pool.execute(
            'CREATE INDEX items_embedding ON items USING gpugraph (embedding halfvec_cosine_ops)')
        data = common.rows()
        records = [(i, category, HalfVector(vector)) for i, category, vector in data]
        await pool.copy_records_to_table('items', records=records)
        await pool.execute('ANALYZE items')

        async def answers():
            asked = [HalfVector(vector) for vector in common.queries()]
            found = await asyncio.gather(
                *(pool.fetch(QUERY, common.FILTER, vector) for vector in asked))
            return {str(v): [row['id'] for row in f] for v, f in zip(common.queries(), found)}

        plan = await pool.fetch('EXPLAIN ' + QUERY, common.FILTER,
                                HalfVector(common.queries(1)[0]))
        common.check_plan('asyncpg', '\n'.join(row[0] for row in plan), 'items_embedding')

        found = await answers()
        common.check_answers('asyncpg, inserted', data, common.cosine, lambda q: found[str(q)])

        await pool.execute('REINDEX INDEX CONCURRENTLY items_embedding')
        found = await answers()
        common.check_answers('asyncpg, rebuilt', data, common.cosine, lambda q: found[str(q)])


asyncio.run(main())
common.done()
