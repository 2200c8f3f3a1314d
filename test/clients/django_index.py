"""Django and pgvector-python: migrations that Django writes create the index and drop it."""

import os
import sys
import tempfile
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command

import common

EXTENSIONS = """
from django.contrib.postgres.operations import CreateExtension
from django.db import migrations
from pgvector.django import VectorExtension


class Migration(migrations.Migration):
    operations = [VectorExtension(), CreateExtension('gpugraph')]
"""

folder = tempfile.TemporaryDirectory()
sys.path.insert(0, folder.name)
migrations = Path(folder.name) / 'shop_migrations'
migrations.mkdir()
(migrations / '__init__.py').touch()
(migrations / '0001_extensions.py').write_text(EXTENSIONS)

settings.configure(
    DATABASES={
        'default': {
            'ENGINE': 'django.db.backends.postgresql',
            'NAME': os.environ['PGDATABASE'],
            'OPTIONS': {'options': '-c enable_seqscan=off'},
        }
    },
    INSTALLED_APPS=['django.contrib.postgres', 'shop'],
    MIGRATION_MODULES={'shop': 'shop_migrations'},
    DEFAULT_AUTO_FIELD='django.db.models.BigAutoField',
)
django.setup()

from django.db import connection  # noqa: E402 (needs the settings)
from pgvector.django import CosineDistance  # noqa: E402

from shop.models import Item  # noqa: E402

index = Path(common.__file__).with_name('shop') / 'indexes.py'
common.ok(index.read_text().endswith(common.block('Django')),
          'Django: the class is that of the page')
call_command('makemigrations', 'shop', verbosity=0)
call_command('migrate', verbosity=0)
written = '\n'.join(p.read_text() for p in migrations.glob('0002*.py'))
common.ok('shop.indexes.GpugraphIndex(' in written and 'graph_degree=24' in written,
          'Django: the migration has the index with its options', written)
with connection.cursor() as cursor:
    cursor.execute("SELECT pg_get_indexdef('item_embedding'::regclass)")
    definition = cursor.fetchone()[0]
common.ok('USING gpugraph (embedding vector_cosine_ops)' in definition
          and "graph_degree='24'" in definition and "intermediate_graph_degree='48'" in definition,
          'Django: so has the database', definition)
# With check, the command exits when the model and the migrations differ.
try:
    call_command('makemigrations', 'shop', check=True, dry_run=True, verbosity=0)
    common.ok(True, 'Django: no change is left to migrate')
except SystemExit:
    common.ok(False, 'Django: no change is left to migrate')


def nearest(vector):
    found = Item.objects.filter(category=common.FILTER)
    return found.order_by(CosineDistance('embedding', vector))[:common.NEAREST]


def ask(vector):
    return [item.id for item in nearest(vector)]


data = common.rows()
Item.objects.bulk_create(Item(id=i, category=c, embedding=v) for i, c, v in data)
with connection.cursor() as cursor:
    cursor.execute('ANALYZE shop_item')
common.check_plan('Django', nearest(common.queries(1)[0]).explain(), 'item_embedding')
common.check_answers('Django, inserted', data, common.cosine, ask)
with connection.cursor() as cursor:
    cursor.execute('REINDEX INDEX item_embedding')
common.check_answers('Django, rebuilt', data, common.cosine, ask)

call_command('migrate', 'shop', '0001', verbosity=0)
with connection.cursor() as cursor:
    cursor.execute("SELECT to_regclass('item_embedding')")
    common.ok(cursor.fetchone()[0] is None, 'Django: migrating back drops the index')
common.done()
