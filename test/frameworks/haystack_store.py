"""Haystack's document store and retrievers, alone and joined in a pipeline."""

from haystack import Document, Pipeline
from haystack.components.joiners import DocumentJoiner
from haystack.document_stores.types import DuplicatePolicy
from haystack_integrations.components.retrievers.pgvector import (
    PgvectorEmbeddingRetriever, PgvectorKeywordRetriever)

import common
import stores

stores.prepare()
url = f'postgresql://postgres@/{stores.DATABASE}?host={stores.HOST}&port={stores.PORT}'
exec(common.block('Haystack'))  # store, index

rows = stores.ROWS
documents = [
    Document(id=str(i), content=stores.text((i, c, v)), embedding=v,
             meta={'source': stores.WORDS[c], 'category': c})
    for i, c, v in rows]
store.write_documents(documents)
stores.execute(index)
stores.execute('ANALYZE items')
retriever = PgvectorEmbeddingRetriever(document_store=store, top_k=common.NEAREST)


def search(text, filters=None):
    found = retriever.run(query_embedding=stores.vector(text), filters=filters)['documents']
    return [d.content for d in found]


def by(field, operator, value):
    return {'field': f'meta.{field}', 'operator': operator, 'value': value}


cases = [
    ('a word', by('source', '==', stores.WORDS[common.FILTER])),
    ('one of several words', by('source', 'in', [stores.WORDS[common.FILTER], 'none'])),
    ('a number', by('category', '==', common.FILTER)),
    ('a range', {'operator': 'AND', 'conditions': [
        by('category', '>', common.FILTER - 1), by('category', '<=', common.FILTER)]}),
]
for what, filters in cases:
    what = f'Haystack, filter by {what}'
    plan = stores.check_plans(what, 'items_embedding', lambda: search('query 0', filters))
    common.ok('Index Cond' in plan, f'{what}: the index answers it', plan)
    common.check_answers(what, rows, common.cosine, stores.ask(lambda t: search(t, filters)))
stores.check_plans('Haystack', 'items_embedding', lambda: search('query 0'))

pipeline = Pipeline()
pipeline.add_component('near', retriever)
pipeline.add_component('words', PgvectorKeywordRetriever(document_store=store, top_k=10))
pipeline.add_component('join', DocumentJoiner(join_mode='reciprocal_rank_fusion'))
pipeline.connect('near', 'join')
pipeline.connect('words', 'join')


def both():
    found = pipeline.run({'near': {'query_embedding': stores.QUERIES[1]},
                          'words': {'query': 'birch'}})
    return [d.content for d in found['join']['documents']]


stores.check_plans('Haystack, hybrid', 'items_embedding', both)
common.ok(any('birch' in t for t in both()) and set(search('query 1')) <= set(both()),
          'Haystack: a pipeline joins rows of both kinds', both())

stores.execute('REINDEX INDEX items_embedding')
filters = cases[2][1]
common.check_answers('Haystack, re-indexed', rows, common.cosine,
                     stores.ask(lambda t: search(t, filters)))
store.write_documents(documents[:500], policy=DuplicatePolicy.OVERWRITE)
common.check_answers('Haystack, overwritten', rows, common.cosine,
                     stores.ask(lambda t: search(t, filters)))
gone = search('query 2')
store.delete_documents([str(stores.number(t)) for t in gone])
left = search('query 2')
common.ok(not set(gone) & set(left) and len(left) == common.NEAREST,
          'Haystack: deleted rows are gone, and others take their places')
common.done()
