"""SQLAlchemy and pgvector-python: the index is declared with the model, queries are the ORM's."""

from pgvector.sqlalchemy import VECTOR
from sqlalchemy import Index, create_engine, event, inspect, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import common


class Base(DeclarativeBase):
    pass


class Item(Base):
    __tablename__ = 'items'

    id: Mapped[int] = mapped_column(primary_key=True)
    category: Mapped[int]
    embedding = mapped_column(VECTOR(common.DIMENSIONS))

    __table_args__ = (
        Index(
            'items_embedding', 'embedding',
            postgresql_using='gpugraph',
            postgresql_with={'graph_degree': 24, 'storage': 'float16'},
            postgresql_ops={'embedding': 'vector_ip_ops'}),
    )


# Without a host in the URL, libpq's environment says where the server is.
engine = create_engine('postgresql+psycopg://')
with engine.begin() as connection:
    connection.execute(text('CREATE EXTENSION vector'))
    connection.execute(text('CREATE EXTENSION gpugraph'))
Base.metadata.create_all(engine)


@event.listens_for(engine, 'connect')
def use_index(connection, _):
    connection.execute('SET enable_seqscan = off')
    connection.commit()


engine.dispose()


def nearest(vector):
    return (
        select(Item.id).where(Item.category == common.FILTER)
        .order_by(Item.embedding.max_inner_product(vector)).limit(common.NEAREST))


data = common.rows()
with Session(engine) as session:
    session.add_all(Item(id=i, category=c, embedding=v) for i, c, v in data)
    session.commit()

with Session(engine) as session:
    session.execute(text('ANALYZE items'))

    def ask(vector):
        return list(session.scalars(nearest(vector)))

    compiled = nearest(common.queries(1)[0]).compile(
        engine, compile_kwargs={'literal_binds': True})
    plan = session.scalars(text('EXPLAIN ' + str(compiled).replace(':', '\\:')))
    common.check_plan('SQLAlchemy', '\n'.join(plan), 'items_embedding')
    common.check_answers('SQLAlchemy, inserted', data, common.inner, ask)

    session.execute(text('REINDEX INDEX items_embedding'))
    common.check_answers('SQLAlchemy, rebuilt', data, common.inner, ask)
    session.commit()

index = inspect(engine).get_indexes('items')[0]
common.ok(index['dialect_options']['postgresql_using'] == 'gpugraph',
          'SQLAlchemy: reflection names the access method', index)
common.ok(index['dialect_options']['postgresql_with'] ==
          {'graph_degree': '24', 'storage': 'float16'},
          'SQLAlchemy: reflection has the options', index)
common.done()
