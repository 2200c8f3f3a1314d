-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION gpugraph UPDATE TO '1.2.0'" to load this file. \quit

-- many queries in one call

CREATE FUNCTION gpugraph_search(index regclass, queries vector[], k int,
	OUT query int, OUT ctid tid, OUT distance float8) RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT STABLE PARALLEL RESTRICTED COST 10000;

COMMENT ON FUNCTION gpugraph_search(regclass, vector[], int)
	IS 'the k nearest visible rows of each query, by a gpugraph index';

CREATE FUNCTION gpugraph_search(index regclass, queries halfvec[], k int,
	OUT query int, OUT ctid tid, OUT distance float8) RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT STABLE PARALLEL RESTRICTED COST 10000;

COMMENT ON FUNCTION gpugraph_search(regclass, halfvec[], int)
	IS 'the k nearest visible rows of each query, by a gpugraph index';

CREATE FUNCTION gpugraph_knn_graph(index regclass, k int,
	OUT ctid tid, OUT neighbor tid, OUT distance float8) RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT STABLE PARALLEL RESTRICTED COST 10000 ROWS 100000;

COMMENT ON FUNCTION gpugraph_knn_graph(regclass, int)
	IS 'the k nearest other rows of every visible row of a gpugraph index';

CREATE FUNCTION gpugraph_recall(index regclass, k int DEFAULT 10, sample int DEFAULT 100,
	OUT itopk_size int, OUT recall float8, OUT p50_ms float8, OUT p95_ms float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE COST 1000000 ROWS 7;

COMMENT ON FUNCTION gpugraph_recall(regclass, int, int)
	IS 'recall and latency of a gpugraph index at several values of gpugraph.itopk_size';

CREATE FUNCTION gpugraph_itopk_size(index regclass, k int, recall float8, sample int DEFAULT 100)
	RETURNS int
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE COST 1000000;

COMMENT ON FUNCTION gpugraph_itopk_size(regclass, int, float8, int)
	IS 'the gpugraph.itopk_size that a wanted recall needs; NULL when none suffices';

CREATE FUNCTION gpugraph_last_scan(OUT index regclass, OUT engine text, OUT reason text,
	OUT lists int, OUT exact_lists int, OUT widenings int, OUT filter text, OUT matches bigint,
	OUT rows bigint, OUT distances bigint)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpugraph_last_scan()
	IS 'how the last scan of a gpugraph index in this session was done';
