"""LlamaIndex's PGVectorStore: a statement creates the index, with its filters' expressions."""

import sqlalchemy
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator, MetadataFilter, MetadataFilters, VectorStoreQuery, VectorStoreQueryMode)
from sqlalchemy.ext.asyncio import create_async_engine

import common
import stores

stores.prepare()
engine = sqlalchemy.create_engine(stores.url('psycopg2'))
async_engine = create_async_engine(stores.url('asyncpg'))
exec(common.block('LlamaIndex'))  # store, index

rows = stores.ROWS
store.add([
    TextNode(id_=str(i), text=stores.text((i, c, v)), embedding=v,
             relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f'document {i}')},
             metadata={'source': stores.WORDS[c], 'category': c})
    for i, c, v in rows])
stores.execute(index)
stores.execute('ANALYZE data_items')
vectors = {i: v for i, _, v in rows}


def search(text, filters=None, **options):
    query = VectorStoreQuery(
        query_embedding=stores.vector(text), similarity_top_k=common.NEAREST, filters=filters,
        **options)
    return [n.get_content() for n in store.query(query).nodes]


def by(key, value, operator=FilterOperator.EQ):
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])


# A value that is a number, or can be read as one, is compared as float8, any other as text.
cases = [
    ('a word', by('source', stores.WORDS[common.FILTER]), "Index Cond: ((metadata_ ->> 'source'"),
    ('a number', by('category', common.FILTER), "Index Cond: (((metadata_ ->> 'category'"),
    ('a word of several', by('source', [stores.WORDS[common.FILTER]], FilterOperator.IN),
     "Index Cond: ((metadata_ ->> 'source'"),
]
for what, filters, condition in cases:
    what = f'LlamaIndex, filter by {what}'
    plan = stores.check_plans(
        what, 'data_items_embedding', lambda: search('query 0', filters))
    common.ok(condition in plan, f'{what}: the index answers it', plan)
    common.check_answers(what, rows, common.cosine, stores.ask(lambda t: search(t, filters)))

stores.check_plans('LlamaIndex', 'data_items_embedding', lambda: search('query 0'))
stores.check_plans('LlamaIndex, MMR', 'data_items_embedding',
                   lambda: search('query 0', mode=VectorStoreQueryMode.MMR))


def both():
    return search('query 1', mode=VectorStoreQueryMode.HYBRID, query_str='birch', sparse_top_k=5)


stores.check_plans('LlamaIndex, hybrid', 'data_items_embedding', both)
common.ok(any('birch' in t for t in both()) and set(search('query 1')) <= set(both()),
          'LlamaIndex: hybrid search has rows of both kinds', both())

# a threshold in the statement, by customize_query_fn
query = VectorStoreQuery(query_embedding=stores.QUERIES[0], similarity_top_k=50)


def near():
    return near_store.query(query).similarities


plan = stores.check_plans('LlamaIndex, threshold', 'data_items_embedding', near)
similar = [1 - common.cosine(stores.QUERIES[0], v) for v in vectors.values()]
expected = sum(s > 0.8 for s in similar)
common.ok('< ' in plan and 2 < expected <= 50 and min(near()) > 0.8
          and abs(len(near()) - expected) <= 1, 'LlamaIndex: a threshold', (near(), expected))

stores.execute('REINDEX INDEX data_items_embedding')
filters = cases[1][1]
common.check_answers('LlamaIndex, re-indexed', rows, common.cosine,
                     stores.ask(lambda t: search(t, filters)))
gone = search('query 2')
for t in gone[:5]:
    store.delete(f'document {stores.number(t)}')
store.delete_nodes([str(stores.number(t)) for t in gone[5:]])
left = search('query 2')
common.ok(not set(gone) & set(left) and len(left) == common.NEAREST,
          'LlamaIndex: deleted rows are gone, and others take their places')
common.done()
