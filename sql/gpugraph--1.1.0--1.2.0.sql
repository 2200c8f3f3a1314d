-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION gpugraph UPDATE TO '1.2.0'" to load this file. \quit

-- many queries in one call

CREATE FUNCTION gpugraph_search(index regclass, queries vector[], k int,
	max_distance float8[] DEFAULT '{}',
	OUT query int, OUT tid tid, OUT distance float8) RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT STABLE PARALLEL RESTRICTED COST 10000;

COMMENT ON FUNCTION gpugraph_search(regclass, vector[], int, float8[])
	IS 'the k nearest visible rows of each query, by a gpugraph index';

CREATE FUNCTION gpugraph_search(index regclass, queries halfvec[], k int,
	max_distance float8[] DEFAULT '{}',
	OUT query int, OUT tid tid, OUT distance float8) RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT STABLE PARALLEL RESTRICTED COST 10000;

COMMENT ON FUNCTION gpugraph_search(regclass, halfvec[], int, float8[])
	IS 'the k nearest visible rows of each query, by a gpugraph index';

CREATE FUNCTION gpugraph_knn_graph(index regclass, k int, algorithm text DEFAULT 'search',
	OUT tid tid, OUT neighbor tid, OUT distance float8) RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT STABLE PARALLEL RESTRICTED COST 10000 ROWS 100000;

COMMENT ON FUNCTION gpugraph_knn_graph(regclass, int, text)
	IS 'the k nearest other rows of every visible row of a gpugraph index';

CREATE FUNCTION gpugraph_recall(index regclass, k int DEFAULT 10, sample int DEFAULT 100,
	OUT itopk_size int, OUT recall float8, OUT p50_ms float8, OUT p95_ms float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE COST 1000000 ROWS 7;

COMMENT ON FUNCTION gpugraph_recall(regclass, int, int)
	IS 'recall and latency of a gpugraph index at several values of gpugraph.itopk_size';

CREATE FUNCTION gpugraph_recall(index regclass, queries vector[], k int DEFAULT 10,
	OUT itopk_size int, OUT recall float8, OUT p50_ms float8, OUT p95_ms float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME', 'gpugraph_recall_of_queries'
	LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE COST 1000000 ROWS 7;

COMMENT ON FUNCTION gpugraph_recall(regclass, vector[], int)
	IS 'recall and latency of the given queries at several values of gpugraph.itopk_size';

CREATE FUNCTION gpugraph_recall(index regclass, queries halfvec[], k int DEFAULT 10,
	OUT itopk_size int, OUT recall float8, OUT p50_ms float8, OUT p95_ms float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME', 'gpugraph_recall_of_queries'
	LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE COST 1000000 ROWS 7;

COMMENT ON FUNCTION gpugraph_recall(regclass, halfvec[], int)
	IS 'recall and latency of the given queries at several values of gpugraph.itopk_size';

CREATE FUNCTION gpugraph_itopk_size(index regclass, k int, recall float8, sample int DEFAULT 100)
	RETURNS int
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE COST 1000000;

COMMENT ON FUNCTION gpugraph_itopk_size(regclass, int, float8, int)
	IS 'the gpugraph.itopk_size that a wanted recall needs; NULL when none suffices';

CREATE FUNCTION gpugraph_itopk_size(index regclass, queries vector[], k int, recall float8)
	RETURNS int
	AS 'MODULE_PATHNAME', 'gpugraph_itopk_size_of_queries'
	LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE COST 1000000;

COMMENT ON FUNCTION gpugraph_itopk_size(regclass, vector[], int, float8)
	IS 'the gpugraph.itopk_size that the given queries need; NULL when none suffices';

CREATE FUNCTION gpugraph_itopk_size(index regclass, queries halfvec[], k int, recall float8)
	RETURNS int
	AS 'MODULE_PATHNAME', 'gpugraph_itopk_size_of_queries'
	LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE COST 1000000;

COMMENT ON FUNCTION gpugraph_itopk_size(regclass, halfvec[], int, float8)
	IS 'the gpugraph.itopk_size that the given queries need; NULL when none suffices';

CREATE FUNCTION gpugraph_last_scan(OUT index regclass, OUT engine text, OUT reason text,
	OUT procedure text, OUT queries bigint, OUT lists bigint, OUT exact_lists bigint,
	OUT widenings bigint, OUT filter text, OUT matches bigint, OUT rows bigint,
	OUT distances bigint, OUT reranked bigint, OUT candidate_list int, OUT expected_recall float8)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpugraph_last_scan()
	IS 'how the session''s last scan of a gpugraph index, or call for many queries, was done';
-- operator classes of filter columns: strategies 1 to 5 are those of B-trees, 6 is &&, 7 is @>

CREATE OPERATOR CLASS bool_ops
	DEFAULT FOR TYPE boolean USING gpugraph AS
	OPERATOR 1 < (boolean, boolean),
	OPERATOR 2 <= (boolean, boolean),
	OPERATOR 3 = (boolean, boolean),
	OPERATOR 4 >= (boolean, boolean),
	OPERATOR 5 > (boolean, boolean);

CREATE OPERATOR FAMILY integer_ops USING gpugraph;

CREATE OPERATOR CLASS int2_ops
	DEFAULT FOR TYPE smallint USING gpugraph FAMILY integer_ops AS
	OPERATOR 1 < (smallint, smallint),
	OPERATOR 2 <= (smallint, smallint),
	OPERATOR 3 = (smallint, smallint),
	OPERATOR 4 >= (smallint, smallint),
	OPERATOR 5 > (smallint, smallint);

CREATE OPERATOR CLASS int4_ops
	DEFAULT FOR TYPE integer USING gpugraph FAMILY integer_ops AS
	OPERATOR 1 < (integer, integer),
	OPERATOR 2 <= (integer, integer),
	OPERATOR 3 = (integer, integer),
	OPERATOR 4 >= (integer, integer),
	OPERATOR 5 > (integer, integer);

CREATE OPERATOR CLASS int8_ops
	DEFAULT FOR TYPE bigint USING gpugraph FAMILY integer_ops AS
	OPERATOR 1 < (bigint, bigint),
	OPERATOR 2 <= (bigint, bigint),
	OPERATOR 3 = (bigint, bigint),
	OPERATOR 4 >= (bigint, bigint),
	OPERATOR 5 > (bigint, bigint);

ALTER OPERATOR FAMILY integer_ops USING gpugraph ADD
	OPERATOR 1 < (smallint, integer),
	OPERATOR 2 <= (smallint, integer),
	OPERATOR 3 = (smallint, integer),
	OPERATOR 4 >= (smallint, integer),
	OPERATOR 5 > (smallint, integer),
	OPERATOR 1 < (smallint, bigint),
	OPERATOR 2 <= (smallint, bigint),
	OPERATOR 3 = (smallint, bigint),
	OPERATOR 4 >= (smallint, bigint),
	OPERATOR 5 > (smallint, bigint),
	OPERATOR 1 < (integer, smallint),
	OPERATOR 2 <= (integer, smallint),
	OPERATOR 3 = (integer, smallint),
	OPERATOR 4 >= (integer, smallint),
	OPERATOR 5 > (integer, smallint),
	OPERATOR 1 < (integer, bigint),
	OPERATOR 2 <= (integer, bigint),
	OPERATOR 3 = (integer, bigint),
	OPERATOR 4 >= (integer, bigint),
	OPERATOR 5 > (integer, bigint),
	OPERATOR 1 < (bigint, smallint),
	OPERATOR 2 <= (bigint, smallint),
	OPERATOR 3 = (bigint, smallint),
	OPERATOR 4 >= (bigint, smallint),
	OPERATOR 5 > (bigint, smallint),
	OPERATOR 1 < (bigint, integer),
	OPERATOR 2 <= (bigint, integer),
	OPERATOR 3 = (bigint, integer),
	OPERATOR 4 >= (bigint, integer),
	OPERATOR 5 > (bigint, integer);

CREATE OPERATOR FAMILY float_ops USING gpugraph;

CREATE OPERATOR CLASS float4_ops
	DEFAULT FOR TYPE real USING gpugraph FAMILY float_ops AS
	OPERATOR 1 < (real, real),
	OPERATOR 2 <= (real, real),
	OPERATOR 3 = (real, real),
	OPERATOR 4 >= (real, real),
	OPERATOR 5 > (real, real);

CREATE OPERATOR CLASS float8_ops
	DEFAULT FOR TYPE double precision USING gpugraph FAMILY float_ops AS
	OPERATOR 1 < (double precision, double precision),
	OPERATOR 2 <= (double precision, double precision),
	OPERATOR 3 = (double precision, double precision),
	OPERATOR 4 >= (double precision, double precision),
	OPERATOR 5 > (double precision, double precision);

ALTER OPERATOR FAMILY float_ops USING gpugraph ADD
	OPERATOR 1 < (real, double precision),
	OPERATOR 2 <= (real, double precision),
	OPERATOR 3 = (real, double precision),
	OPERATOR 4 >= (real, double precision),
	OPERATOR 5 > (real, double precision),
	OPERATOR 1 < (double precision, real),
	OPERATOR 2 <= (double precision, real),
	OPERATOR 3 = (double precision, real),
	OPERATOR 4 >= (double precision, real),
	OPERATOR 5 > (double precision, real);

CREATE OPERATOR FAMILY datetime_ops USING gpugraph;

CREATE OPERATOR CLASS date_ops
	DEFAULT FOR TYPE date USING gpugraph FAMILY datetime_ops AS
	OPERATOR 1 < (date, date),
	OPERATOR 2 <= (date, date),
	OPERATOR 3 = (date, date),
	OPERATOR 4 >= (date, date),
	OPERATOR 5 > (date, date);

CREATE OPERATOR CLASS timestamp_ops
	DEFAULT FOR TYPE timestamp USING gpugraph FAMILY datetime_ops AS
	OPERATOR 1 < (timestamp, timestamp),
	OPERATOR 2 <= (timestamp, timestamp),
	OPERATOR 3 = (timestamp, timestamp),
	OPERATOR 4 >= (timestamp, timestamp),
	OPERATOR 5 > (timestamp, timestamp);

ALTER OPERATOR FAMILY datetime_ops USING gpugraph ADD
	OPERATOR 1 < (date, timestamp),
	OPERATOR 2 <= (date, timestamp),
	OPERATOR 3 = (date, timestamp),
	OPERATOR 4 >= (date, timestamp),
	OPERATOR 5 > (date, timestamp),
	OPERATOR 1 < (timestamp, date),
	OPERATOR 2 <= (timestamp, date),
	OPERATOR 3 = (timestamp, date),
	OPERATOR 4 >= (timestamp, date),
	OPERATOR 5 > (timestamp, date);

CREATE OPERATOR CLASS timestamptz_ops
	DEFAULT FOR TYPE timestamptz USING gpugraph AS
	OPERATOR 1 < (timestamptz, timestamptz),
	OPERATOR 2 <= (timestamptz, timestamptz),
	OPERATOR 3 = (timestamptz, timestamptz),
	OPERATOR 4 >= (timestamptz, timestamptz),
	OPERATOR 5 > (timestamptz, timestamptz);

ALTER OPERATOR FAMILY timestamptz_ops USING gpugraph ADD
	OPERATOR 1 < (timestamptz, date),
	OPERATOR 2 <= (timestamptz, date),
	OPERATOR 3 = (timestamptz, date),
	OPERATOR 4 >= (timestamptz, date),
	OPERATOR 5 > (timestamptz, date),
	OPERATOR 1 < (timestamptz, timestamp),
	OPERATOR 2 <= (timestamptz, timestamp),
	OPERATOR 3 = (timestamptz, timestamp),
	OPERATOR 4 >= (timestamptz, timestamp),
	OPERATOR 5 > (timestamptz, timestamp);

CREATE OPERATOR CLASS uuid_ops
	DEFAULT FOR TYPE uuid USING gpugraph AS
	OPERATOR 1 < (uuid, uuid),
	OPERATOR 2 <= (uuid, uuid),
	OPERATOR 3 = (uuid, uuid),
	OPERATOR 4 >= (uuid, uuid),
	OPERATOR 5 > (uuid, uuid);

CREATE OPERATOR CLASS enum_ops
	DEFAULT FOR TYPE anyenum USING gpugraph AS
	OPERATOR 1 < (anyenum, anyenum),
	OPERATOR 2 <= (anyenum, anyenum),
	OPERATOR 3 = (anyenum, anyenum),
	OPERATOR 4 >= (anyenum, anyenum),
	OPERATOR 5 > (anyenum, anyenum);

CREATE OPERATOR CLASS text_ops
	DEFAULT FOR TYPE text USING gpugraph AS
	OPERATOR 3 = (text, text);

CREATE OPERATOR CLASS array_ops
	DEFAULT FOR TYPE anyarray USING gpugraph AS
	OPERATOR 6 && (anyarray, anyarray),
	OPERATOR 7 @> (anyarray, anyarray);

-- More columns, behind those that were there.  CREATE OR REPLACE does not change what a function
-- returns, and DROP would take its rights along, and what users made of it.  So the columns are
-- those of a function that is made for the purpose.

CREATE FUNCTION gpugraph_index_info_1_2(index regclass,
	OUT version int, OUT dimensions int, OUT metric text, OUT element text,
	OUT algorithm text, OUT engine text, OUT nodes bigint, OUT rows bigint,
	OUT segments int, OUT pivots bigint, OUT delta_rows bigint, OUT dead_rows bigint,
	OUT graph_degree int, OUT intermediate_graph_degree int, OUT seed int,
	OUT generation bigint, OUT vectors_bytes bigint, OUT adjacency_bytes bigint,
	OUT tids_bytes bigint, OUT pivots_bytes bigint, OUT delta_bytes bigint,
	OUT free_bytes bigint, OUT total_bytes bigint, OUT total_seconds float4,
	OUT scan_seconds float4, OUT copy_seconds float4, OUT knn_seconds float4,
	OUT optimize_seconds float4, OUT write_seconds float4, OUT wal_seconds float4,
	OUT filter_columns int, OUT filters_bytes bigint, OUT extents int, OUT extents_limit int,
	OUT parked_bytes bigint, OUT codes text, OUT codes_bytes bigint,
	OUT sample_queries int, OUT sample_bytes bigint, OUT codes_reason text)
	AS 'MODULE_PATHNAME', 'gpugraph_index_info' LANGUAGE C;

CREATE FUNCTION gpugraph_stat_get_device_1_2(
	OUT device int, OUT name text, OUT state text, OUT pid int, OUT total_bytes bigint,
	OUT limit_bytes bigint, OUT resident_bytes bigint, OUT resident_indexes int, OUT queries bigint,
	OUT batches bigint, OUT batch_sizes bigint[], OUT queue_p50_us bigint, OUT queue_p95_us bigint,
	OUT queue_p99_us bigint, OUT kernel_p50_us bigint, OUT kernel_p95_us bigint,
	OUT kernel_p99_us bigint, OUT queue_us bigint[], OUT kernel_us bigint[], OUT abandoned bigint,
	OUT failed bigint, OUT loads bigint, OUT refreshes bigint, OUT failed_loads bigint,
	OUT evictions bigint, OUT restarts bigint, OUT started timestamptz, OUT last_error text,
	OUT last_error_at timestamptz, OUT stats_reset timestamptz, OUT build_bytes bigint,
	OUT slots int, OUT answer_chunks int, OUT loading int, OUT staging_chunks int,
	OUT merges bigint, OUT merge_seconds float8) RETURNS SETOF record
	AS 'MODULE_PATHNAME', 'gpugraph_stat_get_device' LANGUAGE C;

CREATE FUNCTION gpugraph_stat_get_index_1_2(
	OUT datid oid, OUT relid oid, OUT device int, OUT state text, OUT bytes bigint,
	OUT generation bigint, OUT segments int, OUT delta_pages bigint, OUT loaded_at timestamptz,
	OUT load_seconds float8, OUT refreshes bigint, OUT refreshed_at timestamptz,
	OUT refresh_seconds float8, OUT queries_gpu bigint, OUT queries_cpu bigint,
	OUT cpu_setting bigint, OUT cpu_no_service bigint, OUT cpu_not_resident bigint,
	OUT cpu_loading bigint, OUT cpu_memory bigint, OUT cpu_busy bigint, OUT cpu_failed bigint,
	OUT cpu_too_large bigint, OUT cpu_local bigint, OUT cpu_small bigint, OUT rows_returned bigint,
	OUT last_error text, OUT last_error_at timestamptz, OUT devices int[],
	OUT device_segments int[], OUT host_bytes bigint, OUT missing_bytes bigint,
	OUT coded_segments int, OUT rowless_segments int, OUT halved_segments int,
	OUT missing_segments int, OUT queries_both bigint)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME', 'gpugraph_stat_get_index' LANGUAGE C;

CREATE FUNCTION gpugraph_get_index_1_2(index oid, valid boolean,
	OUT bytes bigint, OUT rows bigint, OUT delta_rows bigint, OUT delta_share float8,
	OUT dead_rows bigint, OUT segments int, OUT storage text, OUT device int, OUT state text,
	OUT queries_gpu bigint, OUT queries_cpu bigint, OUT hint text, OUT algorithm text,
	OUT recall float8, OUT recall_measured timestamptz, OUT recall_by text)
	AS 'MODULE_PATHNAME', 'gpugraph_get_index' LANGUAGE C;

UPDATE pg_catalog.pg_proc f
	SET proallargtypes = n.proallargtypes, proargmodes = n.proargmodes, proargnames = n.proargnames
	FROM pg_catalog.pg_proc n, (VALUES
		('gpugraph_index_info(pg_catalog.regclass)'::pg_catalog.regprocedure::pg_catalog.oid,
		'gpugraph_index_info_1_2(pg_catalog.regclass)'::pg_catalog.regprocedure::pg_catalog.oid),
		('gpugraph_stat_get_device()'::pg_catalog.regprocedure::pg_catalog.oid,
		'gpugraph_stat_get_device_1_2()'::pg_catalog.regprocedure::pg_catalog.oid),
		('gpugraph_stat_get_index()'::pg_catalog.regprocedure::pg_catalog.oid,
		'gpugraph_stat_get_index_1_2()'::pg_catalog.regprocedure::pg_catalog.oid),
		('gpugraph_get_index(pg_catalog.oid, pg_catalog.bool)'::pg_catalog.regprocedure
			::pg_catalog.oid,
		'gpugraph_get_index_1_2(pg_catalog.oid, pg_catalog.bool)'::pg_catalog.regprocedure
			::pg_catalog.oid)) AS v(old, new)
	WHERE f.oid OPERATOR(pg_catalog.=) v.old AND n.oid OPERATOR(pg_catalog.=) v.new;

DROP FUNCTION gpugraph_index_info_1_2(regclass), gpugraph_stat_get_device_1_2(),
	gpugraph_stat_get_index_1_2(), gpugraph_get_index_1_2(oid, boolean);

CREATE OR REPLACE VIEW gpugraph_stat_device AS SELECT * FROM gpugraph_stat_get_device();

CREATE OR REPLACE VIEW gpugraph_stat_index AS
	SELECT s.datid, d.datname, s.relid,
		CASE WHEN d.datname = current_database() THEN s.relid::regclass END AS index,
		s.device, s.state, s.bytes, s.generation, s.segments, s.delta_pages, s.loaded_at,
		s.load_seconds, s.refreshes, s.refreshed_at, s.refresh_seconds, s.queries_gpu,
		s.queries_cpu, s.cpu_setting, s.cpu_no_service, s.cpu_not_resident, s.cpu_loading,
		s.cpu_memory, s.cpu_busy, s.cpu_failed, s.cpu_too_large, s.cpu_local, s.cpu_small,
		s.rows_returned, s.last_error, s.last_error_at, s.devices, s.device_segments, s.host_bytes,
		s.missing_bytes, s.coded_segments, s.rowless_segments, s.halved_segments,
		s.missing_segments, s.queries_both
	FROM gpugraph_stat_get_index() s LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid;

CREATE OR REPLACE VIEW gpugraph_indexes AS
	SELECT n.nspname AS schemaname, t.relname AS tablename, c.relname AS indexname,
		c.oid AS relid, x.indisvalid AS valid, i.*
	FROM pg_catalog.pg_class c
	JOIN pg_catalog.pg_am a ON a.oid = c.relam AND a.amname = 'gpugraph'
	JOIN pg_catalog.pg_index x ON x.indexrelid = c.oid
	JOIN pg_catalog.pg_class t ON t.oid = x.indrelid
	JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	CROSS JOIN LATERAL gpugraph_get_index(c.oid, x.indisvalid) i
	WHERE c.relkind = 'i';

-- recall that is kept

CREATE FUNCTION gpugraph_calibrate(index regclass) RETURNS boolean
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION gpugraph_calibrate(regclass)
	IS 'measure which candidate lists gpugraph.target_recall takes; false while another merges';

CREATE FUNCTION gpugraph_stat_get_recall(index oid, OUT measured timestamptz, OUT queries int,
	OUT by text, OUT other_sample boolean, OUT cpu_rows float8, OUT cpu_codes float8,
	OUT gpu_rows float8, OUT gpu_codes float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION gpugraph_stat_get_recall(oid)
	IS 'recall of an index as it was measured, a row for each day; none for who may not see it';

CREATE VIEW gpugraph_stat_recall AS
	SELECT n.nspname AS schemaname, t.relname AS tablename, c.relname AS indexname,
		c.oid AS relid, r.*
	FROM pg_catalog.pg_class c
	JOIN pg_catalog.pg_am a ON a.oid = c.relam AND a.amname = 'gpugraph'
	JOIN pg_catalog.pg_index x ON x.indexrelid = c.oid
	JOIN pg_catalog.pg_class t ON t.oid = x.indrelid
	JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	CROSS JOIN LATERAL gpugraph_stat_get_recall(c.oid) r
	WHERE c.relkind = 'i';

COMMENT ON VIEW gpugraph_stat_recall
	IS 'recall of LIMIT 10 with a candidate list of 64, as it was measured, a row for each day';

GRANT SELECT ON gpugraph_stat_recall TO PUBLIC;

-- edges learned from queries

CREATE FUNCTION gpugraph_learn(index regclass, queries vector[], edges int DEFAULT 8) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION gpugraph_learn(regclass, vector[], int)
	IS 'learn edges of a graph from sample queries that are not like the rows; edges that are new';

CREATE FUNCTION gpugraph_learn(index regclass, queries halfvec[], edges int DEFAULT 8)
	RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION gpugraph_learn(regclass, halfvec[], int)
	IS 'learn edges of a graph from sample queries that are not like the rows; edges that are new';

CREATE FUNCTION gpugraph_forget(index regclass) RETURNS boolean
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION gpugraph_forget(regclass)
	IS 'forget what gpugraph_learn() was given and has learned; false when that is nothing';

CREATE FUNCTION gpugraph_nearest_centroid_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION gpugraph_nearest_centroid(centroids regprocedure, value vector) RETURNS int
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE COST 100
	SUPPORT gpugraph_nearest_centroid_support;

COMMENT ON FUNCTION gpugraph_nearest_centroid(regprocedure, vector)
	IS 'number of the centroid nearest to a vector, of those that a function returns';

CREATE FUNCTION gpugraph_nearest_centroid(centroids regprocedure, value halfvec) RETURNS int
	AS 'MODULE_PATHNAME', 'gpugraph_nearest_centroid_of_halfvec'
	LANGUAGE C IMMUTABLE PARALLEL SAFE COST 100 SUPPORT gpugraph_nearest_centroid_support;

COMMENT ON FUNCTION gpugraph_nearest_centroid(regprocedure, halfvec)
	IS 'number of the centroid nearest to a vector, of those that a function returns';

CREATE FUNCTION gpugraph_probe(centroids regprocedure, operator text, query vector, place int)
	RETURNS int
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE COST 100;

COMMENT ON FUNCTION gpugraph_probe(regprocedure, text, vector, int)
	IS 'number of the centroid at a place in the order of distance to a query';

CREATE FUNCTION gpugraph_probe(centroids regprocedure, operator text, query halfvec, place int)
	RETURNS int
	AS 'MODULE_PATHNAME', 'gpugraph_probe_of_halfvec'
	LANGUAGE C IMMUTABLE PARALLEL SAFE COST 100;

COMMENT ON FUNCTION gpugraph_probe(regprocedure, text, halfvec, int)
	IS 'number of the centroid at a place in the order of distance to a query';

-- What a plan asks by itself, with the rights of the partitioned table's owner.  No statement can
-- call functions of an internal argument.
CREATE FUNCTION gpugraph_planned_nearest(partitioned oid, centroids regprocedure, value "any",
	internal) RETURNS int
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL SAFE COST 100;

COMMENT ON FUNCTION gpugraph_planned_nearest(oid, regprocedure, "any", internal)
	IS 'what plans call instead of gpugraph_nearest_centroid()';

CREATE FUNCTION gpugraph_planned_probe(partitioned oid, centroids regprocedure, metric int,
	query "any", place int, internal) RETURNS int
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE COST 100;

COMMENT ON FUNCTION gpugraph_planned_probe(oid, regprocedure, int, "any", int, internal)
	IS 'what plans call instead of gpugraph_probe()';

CREATE FUNCTION gpugraph_partition_by_centroid(source regclass, "column" name, target text,
	partitions int, metric text DEFAULT 'l2', sample int DEFAULT 0) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION gpugraph_partition_by_centroid(regclass, name, text, int, text, int)
	IS 'make a table like another one, partitioned by centroids of a sample of its vectors';

-- Types and operators of these names in the extension's own schema would be taken for pgvector's,
-- where that is in another one.  The search_path has pg_catalog first.
DO $$
BEGIN
	IF EXISTS (
		SELECT FROM (
			SELECT 'pg_catalog.pg_type'::regclass::oid, name::regtype::oid
				FROM unnest('{vector,halfvec}'::text[]) name
			UNION ALL SELECT 'pg_catalog.pg_operator'::regclass::oid, o.amopopr
				FROM pg_catalog.pg_amop o JOIN pg_catalog.pg_am a ON a.oid = o.amopmethod
				WHERE a.amname = 'gpugraph'::name AND o.amoppurpose = 'o'::"char"
		) used (classid, objid)
		WHERE NOT EXISTS (
			SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
			WHERE d.classid = used.classid AND d.objid = used.objid AND
				d.refclassid = 'pg_catalog.pg_extension'::regclass::oid AND
				d.deptype = 'e'::"char" AND e.extname = 'vector'::name))
	THEN
		RAISE EXCEPTION USING ERRCODE = 'duplicate_object',
			MESSAGE = 'types or operators of extension gpugraph are not those of extension vector',
			DETAIL = 'There are others of the same names in a schema that is searched before.',
			HINT = 'Drop them, or name a schema where nobody else may create objects.';
	END IF;
END $$;
