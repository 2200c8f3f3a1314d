-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION gpugraph" to load this file. \quit

CREATE FUNCTION gpugraph_handler(internal) RETURNS index_am_handler
	AS 'MODULE_PATHNAME' LANGUAGE C;

CREATE ACCESS METHOD gpugraph TYPE INDEX HANDLER gpugraph_handler;

COMMENT ON ACCESS METHOD gpugraph IS 'gpugraph index access method: CAGRA graphs for nearest neighbors';

-- support function 1 of each operator class: metric and element type

CREATE FUNCTION gpugraph_vector_l2_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION gpugraph_vector_ip_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION gpugraph_vector_cosine_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION gpugraph_vector_l1_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION gpugraph_halfvec_l2_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION gpugraph_halfvec_ip_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION gpugraph_halfvec_cosine_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION gpugraph_halfvec_l1_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE;

-- operator classes, named as pgvector names them

CREATE OPERATOR CLASS vector_l2_ops
	DEFAULT FOR TYPE vector USING gpugraph AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 gpugraph_vector_l2_support(internal);

CREATE OPERATOR CLASS vector_ip_ops
	FOR TYPE vector USING gpugraph AS
	OPERATOR 1 <#> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 gpugraph_vector_ip_support(internal);

CREATE OPERATOR CLASS vector_cosine_ops
	FOR TYPE vector USING gpugraph AS
	OPERATOR 1 <=> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 gpugraph_vector_cosine_support(internal);

CREATE OPERATOR CLASS vector_l1_ops
	FOR TYPE vector USING gpugraph AS
	OPERATOR 1 <+> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 gpugraph_vector_l1_support(internal);

CREATE OPERATOR CLASS halfvec_l2_ops
	FOR TYPE halfvec USING gpugraph AS
	OPERATOR 1 <-> (halfvec, halfvec) FOR ORDER BY float_ops,
	FUNCTION 1 gpugraph_halfvec_l2_support(internal);

CREATE OPERATOR CLASS halfvec_ip_ops
	FOR TYPE halfvec USING gpugraph AS
	OPERATOR 1 <#> (halfvec, halfvec) FOR ORDER BY float_ops,
	FUNCTION 1 gpugraph_halfvec_ip_support(internal);

CREATE OPERATOR CLASS halfvec_cosine_ops
	FOR TYPE halfvec USING gpugraph AS
	OPERATOR 1 <=> (halfvec, halfvec) FOR ORDER BY float_ops,
	FUNCTION 1 gpugraph_halfvec_cosine_support(internal);

CREATE OPERATOR CLASS halfvec_l1_ops
	FOR TYPE halfvec USING gpugraph AS
	OPERATOR 1 <+> (halfvec, halfvec) FOR ORDER BY float_ops,
	FUNCTION 1 gpugraph_halfvec_l1_support(internal);

-- looking into an index

CREATE FUNCTION gpugraph_index_info(index regclass,
	OUT version int, OUT dimensions int, OUT metric text, OUT element text,
	OUT algorithm text, OUT engine text, OUT nodes bigint, OUT rows bigint,
	OUT segments int, OUT pivots bigint, OUT delta_rows bigint, OUT dead_rows bigint,
	OUT graph_degree int, OUT intermediate_graph_degree int, OUT seed int,
	OUT generation bigint, OUT vectors_bytes bigint, OUT adjacency_bytes bigint,
	OUT tids_bytes bigint, OUT pivots_bytes bigint, OUT delta_bytes bigint,
	OUT free_bytes bigint, OUT total_bytes bigint, OUT total_seconds float4,
	OUT scan_seconds float4, OUT copy_seconds float4, OUT knn_seconds float4,
	OUT optimize_seconds float4, OUT write_seconds float4, OUT wal_seconds float4)
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpugraph_index_info(regclass) IS 'what a gpugraph index holds, and how its build spent its time';

CREATE FUNCTION gpugraph_check(index regclass, heap_check boolean DEFAULT false) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION gpugraph_check(regclass, boolean) IS 'verify a gpugraph index page by page; with heap_check also against its table';
