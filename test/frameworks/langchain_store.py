"""LangChain's PGVectorStore: the index is applied by a subclass of its BaseIndex."""

from langchain_core.embeddings import Embeddings

import common
import stores

stores.prepare()


class Fake(Embeddings):
    def embed_documents(self, texts):
        return [stores.vector(t) for t in texts]

    def embed_query(self, text):
        return stores.vector(text)


embeddings, url = Fake(), stores.url('psycopg')
exec(common.block('LangChain'))  # store, hybrid

common.ok(store.is_valid_index('items_embedding'), 'LangChain: it knows the index')
rows = stores.ROWS
texts, metadatas = [stores.text(r) for r in rows], [{'category': r[1]} for r in rows]
ids = store.add_texts(texts, metadatas)
stores.execute('ANALYZE items')


def search(text, **options):
    return [d.page_content for d in store.similarity_search(text, k=common.NEAREST, **options)]


def filtered(text):
    return search(text, filter={'category': common.FILTER})


plan = stores.check_plans('LangChain', 'items_embedding', lambda: filtered('query 0'))
common.ok('Index Cond: (category = ' in plan, 'LangChain: the index answers the filter', plan)
common.check_answers('LangChain, inserted', rows, common.cosine, stores.ask(filtered))
store.reindex('items_embedding')
common.check_answers('LangChain, re-indexed', rows, common.cosine, stores.ask(filtered))

# the retriever's threshold is on 1 - distance
retriever = store.as_retriever(
    search_type='similarity_score_threshold', search_kwargs={'score_threshold': 0.8, 'k': 50})
found = [stores.number(d.page_content) for d in retriever.invoke('query 0')]
near = sorted(
    (common.cosine(stores.QUERIES[0], v), i) for i, _, v in rows)
expected = [i for d, i in near if 1 - d >= 0.8][:50]
common.ok(len(expected) > 2 and len(set(found) & set(expected)) >= 0.98 * len(expected)
          and len(found) <= len(expected) + 1, 'LangChain: a threshold', (found, expected))

found = [d.page_content for d in store.max_marginal_relevance_search('query 0', k=5, fetch_k=100)]
common.ok(len(set(found)) == 5, 'LangChain: MMR', found)

hybrid.fts_query = 'birch'


def both():
    return search('query 1', hybrid_search_config=hybrid)


stores.check_plans('LangChain, hybrid', 'items_embedding', both)
found = both()
common.ok(any('birch' in t for t in found) and set(found) & set(search('query 1')),
          'LangChain: hybrid search has rows of both kinds', found)

gone = search('query 2')
store.delete([ids[stores.number(t) - 1] for t in gone])
common.ok(not set(gone) & set(search('query 2')) and len(search('query 2')) == common.NEAREST,
          'LangChain: deleted rows are gone, and others take their places')
store.drop_vector_index('items_embedding')
common.ok(not store.is_valid_index('items_embedding'), 'LangChain: it drops the index')
common.done()
