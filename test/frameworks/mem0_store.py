"""mem0's Memory over its pgvector store. No model is asked: memories are added as they are."""

import os
import tempfile
import uuid

scratch = tempfile.TemporaryDirectory()
os.environ.update(MEM0_TELEMETRY='False', OPENAI_API_KEY='none', MEM0_DIR=scratch.name)

import common  # noqa: E402 (mem0 reads the environment when it is imported)
import stores  # noqa: E402

stores.prepare()
url = f'postgresql://postgres@/{stores.DATABASE}?host={stores.HOST}&port={stores.PORT}'
exec(common.block('mem0'))  # memory, index


class Fake:
    def embed(self, text, memory_action=None):
        return stores.vector(text)

    def embed_batch(self, texts, memory_action=None):
        return [stores.vector(t) for t in texts]


memory.embedding_model = Fake()
rows = stores.ROWS
users = {stores.text(r): f'user-{r[1]}' for r in rows}
# some as a program adds them, a transaction each, the others at once
for t in list(users)[:50]:
    memory.add([{'role': 'user', 'content': t}], user_id=users[t], infer=False)
later = list(users)[50:]
memory.vector_store.insert(
    [stores.vector(t) for t in later], [{'data': t, 'user_id': users[t]} for t in later],
    [str(uuid.uuid4()) for t in later])
stores.execute(index)
stores.execute('ANALYZE items')


def search(text, user=f'user-{common.FILTER}', **options):
    options = {'top_k': common.NEAREST, 'threshold': 0.0, **options}
    return memory.search(text, filters={'user_id': user}, **options)['results']


def texts(text, **options):
    return [m['memory'] for m in search(text, **options)]


plan = stores.check_plans('mem0', 'items_embedding', lambda: texts('query 0'))
common.ok('Index Cond' in plan, 'mem0: the index answers the filter', plan)
common.check_answers('mem0', rows, common.cosine, stores.ask(texts))
stores.execute('REINDEX INDEX items_embedding')
common.check_answers('mem0, re-indexed', rows, common.cosine, stores.ask(texts))
near = search('query 0', threshold=0.5)
common.ok(0 < len(near) and all(m['score'] >= 0.5 for m in near), 'mem0: a threshold', near)

found = memory.vector_store.keyword_search(stores.WORDS[common.FILTER])
common.ok(found and all(stores.WORDS[common.FILTER] in m.payload['data'] for m in found),
          'mem0: search by words', found)

gone = search('query 2')
for m in gone:
    memory.delete(m['id'])
left = texts('query 2')
common.ok(not {m['memory'] for m in gone} & set(left) and len(left) == common.NEAREST,
          'mem0: deleted rows are gone, and others take their places')
memory.delete_all(user_id=f'user-{common.FILTER}')
common.ok(texts('query 2') == [], 'mem0: a user is deleted')
common.done()
