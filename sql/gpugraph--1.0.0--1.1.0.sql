-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION gpugraph UPDATE TO '1.1.0'" to load this file. \quit

-- merges of segments

CREATE FUNCTION gpugraph_merge(index regclass) RETURNS boolean
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION gpugraph_merge(regclass)
	IS 'merge what was inserted, and all segments, into one; false while another process does';

CREATE FUNCTION gpugraph_stat_get_merge(
	OUT pid int, OUT datid oid, OUT relid oid, OUT phase text, OUT rows bigint,
	OUT started timestamptz) RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

REVOKE ALL ON FUNCTION gpugraph_stat_get_merge() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION gpugraph_stat_get_merge() TO pg_monitor;

CREATE VIEW gpugraph_stat_merge AS
	SELECT s.pid, s.datid, d.datname, s.relid,
		CASE WHEN d.datname = current_database() THEN s.relid::regclass END AS index,
		s.phase, s.rows, s.started
	FROM gpugraph_stat_get_merge() s LEFT JOIN pg_catalog.pg_database d ON d.oid = s.datid;

COMMENT ON VIEW gpugraph_stat_merge
	IS 'gpugraph indexes that background workers merge, or are asked to';

REVOKE ALL ON gpugraph_stat_merge FROM PUBLIC;
GRANT SELECT ON gpugraph_stat_merge TO pg_monitor;
