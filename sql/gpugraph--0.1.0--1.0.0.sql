-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION gpugraph UPDATE TO '1.0.0'" to load this file. \quit

-- every index: what it holds, who answers its queries, what should be done

CREATE FUNCTION gpugraph_get_index(index oid, valid boolean,
	OUT bytes bigint, OUT rows bigint, OUT delta_rows bigint, OUT delta_share float8,
	OUT dead_rows bigint, OUT segments int, OUT storage text, OUT device int, OUT state text,
	OUT queries_gpu bigint, OUT queries_cpu bigint, OUT hint text)
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION gpugraph_get_index(oid, boolean)
	IS 'a row of gpugraph_indexes; NULL where it would have to wait for a lock';

CREATE VIEW gpugraph_indexes AS
	SELECT n.nspname AS schemaname, t.relname AS tablename, c.relname AS indexname,
		c.oid AS relid, x.indisvalid AS valid, i.*
	FROM pg_catalog.pg_class c
	JOIN pg_catalog.pg_am a ON a.oid = c.relam AND a.amname = 'gpugraph'
	JOIN pg_catalog.pg_index x ON x.indexrelid = c.oid
	JOIN pg_catalog.pg_class t ON t.oid = x.indrelid
	JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	CROSS JOIN LATERAL gpugraph_get_index(c.oid, x.indisvalid) i
	WHERE c.relkind = 'i';

COMMENT ON VIEW gpugraph_indexes
	IS 'gpugraph indexes: size, contents, who answers their queries, what should be done';

GRANT SELECT ON gpugraph_indexes TO PUBLIC;

COMMENT ON FUNCTION gpugraph_prewarm(regclass)
	IS 'bring a gpugraph index onto a device, or into shared buffers without one; its bytes there';
