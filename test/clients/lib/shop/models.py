from django.db import models
from pgvector.django import VectorField

import common
from shop.indexes import GpugraphIndex


class Item(models.Model):
    category = models.IntegerField()
    embedding = VectorField(dimensions=common.DIMENSIONS)

    class Meta:
        indexes = [
            GpugraphIndex(
                name='item_embedding',
                fields=['embedding'],
                opclasses=['vector_cosine_ops'],
                graph_degree=24,
                intermediate_graph_degree=48),
        ]
