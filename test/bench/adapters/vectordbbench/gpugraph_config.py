"""VectorDBBench's pgvector client with another index: the client, its table and its queries stay.

In a module of its own, because the processes that search import it.
"""

from vectordb_bench.backend.clients.pgvector.config import PgVectorHNSWConfig


class GpugraphConfig(PgVectorHNSWConfig):
    m: int | None = None
    ef_construction: int | None = None
    graph_degree: int = 32
    itopk_size: int = 64

    def index_param(self):
        options = self._optionally_build_with_options({'graph_degree': self.graph_degree})
        return {**super().index_param(), 'index_type': 'gpugraph',
                'index_creation_with_options': options}

    def session_param(self):
        settings = {'gpugraph.itopk_size': self.itopk_size}
        return {'session_options': self._optionally_build_set_options(settings)}
