"""Alembic: --autogenerate writes the index of the model, and leaves it alone afterwards."""

from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.operations.ops import OpContainer
from sqlalchemy import MetaData, create_engine, text

import common

exec(common.block('SQLAlchemy, Alembic'))  # metadata

engine = create_engine('postgresql+psycopg://')
with engine.begin() as connection:
    connection.execute(text('CREATE EXTENSION gpugraph CASCADE'))


def flat(operations):
    for operation in operations.ops:
        if isinstance(operation, OpContainer):
            yield from flat(operation)
        else:
            yield operation


def migrate(wanted, apply=True):
    """What the migration to the model does, by names of classes; applied if told so."""
    with engine.begin() as connection:
        context = MigrationContext.configure(connection)
        operations = list(flat(produce_migrations(context, wanted).upgrade_ops))
        for operation in operations if apply else []:
            Operations(context).invoke(operation)
        return [type(o).__name__ for o in operations]


def definition():
    with engine.connect() as connection:
        return connection.execute(
            text("SELECT pg_get_indexdef(to_regclass('items_embedding'))")).scalar()


done = migrate(metadata)
common.ok(done == ['CreateTableOp', 'CreateIndexOp'], 'Alembic: table and index', done)
common.ok('USING gpugraph (embedding vector_cosine_ops, category)' in definition()
          and "graph_degree='48'" in definition(), 'Alembic: the index is the model\'s',
          definition())
done = migrate(metadata)
common.ok(done == [], 'Alembic: nothing is left to migrate', done)

bare = MetaData()
metadata.tables['items'].to_metadata(bare).indexes.clear()
done = migrate(bare, apply=False)
common.ok(done == ['DropIndexOp'], 'Alembic: it drops what the model does not have', done)
migrate(bare)
common.ok(definition() is None, 'Alembic: dropped')
migrate(metadata)
common.ok("graph_degree='48'" in definition(), 'Alembic: created again')
common.done()
