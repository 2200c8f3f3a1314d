"""A gpugraph index in a Django model.

Put this class beside your models, and use it in Meta.indexes:

    class Item(models.Model):
        category = models.IntegerField()
        embedding = VectorField(dimensions=768)

        class Meta:
            indexes = [
                GpugraphIndex(
                    name='item_embedding',
                    fields=['embedding'],
                    opclasses=['vector_cosine_ops'],
                    graph_degree=48),
            ]

The first migration creates the extensions:

    operations = [VectorExtension(), CreateExtension('gpugraph')]

A query with a filter:

    Item.objects.filter(category=3).order_by(CosineDistance('embedding', vector))[:10]
"""

from django.contrib.postgres.indexes import PostgresIndex


class GpugraphIndex(PostgresIndex):
    suffix = 'gpugraph'
    options = ('graph_degree', 'intermediate_graph_degree', 'seed', 'storage')

    def __init__(self, *expressions, **kwargs):
        self.with_options = {o: kwargs.pop(o) for o in self.options if o in kwargs}
        super().__init__(*expressions, **kwargs)

    def deconstruct(self):
        path, args, kwargs = super().deconstruct()
        return path, args, {**kwargs, **self.with_options}

    def get_with_params(self):
        return [f'{option} = {value}' for option, value in self.with_options.items()]
