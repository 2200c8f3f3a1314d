-- Who may call each of the extension's functions. They are taken from pg_proc: a new one fails
-- until it is listed here.
\ir include/helpers.psql
SELECT * FROM no_plan();
\ir include/functions.psql

CREATE ROLE rights_nobody;
CREATE ROLE rights_reader;
CREATE ROLE rights_of_a_column;
CREATE ROLE rights_scans IN ROLE pg_stat_scan_tables;
CREATE ROLE rights_monitor IN ROLE pg_monitor;
CREATE ROLE rights_owner;
GRANT SELECT ON items TO rights_reader;
GRANT SELECT (id) ON items TO rights_of_a_column;
GRANT CREATE ON SCHEMA public TO rights_owner;
ALTER TABLE items OWNER TO rights_owner;
REVOKE EXECUTE ON FUNCTION two() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION two() TO rights_owner, rights_reader;

-- who may call it: nobody in particular (n), who reads the table (r), members of
-- pg_stat_scan_tables (s) and of pg_monitor (m), the table's owner (o)
CREATE TABLE may_call (function text, who text);
INSERT INTO may_call VALUES
	('gpugraph_calibrate(regclass)', 'o'),
	('gpugraph_check(regclass,boolean)', 'o'),
	('gpugraph_evict(regclass)', 'o'),
	('gpugraph_forget(regclass)', 'o'),
	('gpugraph_get_index(oid,boolean)', 'nrsmo'),
	('gpugraph_index_info(regclass)', 'smo'),
	('gpugraph_itopk_size(regclass,halfvec[],integer,double precision)', 'ro'),
	('gpugraph_itopk_size(regclass,integer,double precision,integer)', 'ro'),
	('gpugraph_itopk_size(regclass,vector[],integer,double precision)', 'ro'),
	('gpugraph_knn_graph(regclass,integer,text)', 'ro'),
	('gpugraph_last_scan()', 'nrsmo'),
	('gpugraph_learn(regclass,halfvec[],integer)', 'o'),
	('gpugraph_learn(regclass,vector[],integer)', 'o'),
	('gpugraph_merge(regclass)', 'o'),
	('gpugraph_nearest_centroid(regprocedure,halfvec)', 'ro'),
	('gpugraph_nearest_centroid(regprocedure,vector)', 'ro'),
	('gpugraph_partition_by_centroid(regclass,name,text,integer,text,integer)', 'o'),
	('gpugraph_prewarm(regclass)', 'smo'),
	('gpugraph_probe(regprocedure,text,halfvec,integer)', 'ro'),
	('gpugraph_probe(regprocedure,text,vector,integer)', 'ro'),
	('gpugraph_recall(regclass,halfvec[],integer)', 'ro'),
	('gpugraph_recall(regclass,integer,integer)', 'ro'),
	('gpugraph_recall(regclass,vector[],integer)', 'ro'),
	('gpugraph_search(regclass,halfvec[],integer,double precision[])', 'ro'),
	('gpugraph_search(regclass,vector[],integer,double precision[])', 'ro'),
	('gpugraph_stat_get_device()', 'm'),
	('gpugraph_stat_get_index()', 'm'),
	('gpugraph_stat_get_merge()', 'm'),
	('gpugraph_stat_get_recall(oid)', 'nrsmo'),
	('gpugraph_stat_reset()', '');
SELECT set_eq('SELECT oid::regprocedure::text FROM functions', 'SELECT function FROM may_call',
	'all functions are listed');

CREATE FUNCTION called(role name, call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', role);
	EXECUTE call;
	RESET ROLE;
	RETURN 'may';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT is(called(role, call(f, 0, '')), CASE WHEN m.who ~ short THEN 'may' ELSE '42501' END,
	format('%s: %s', role, m.function))
FROM functions f JOIN may_call m ON m.function = f.oid::regprocedure::text,
	(VALUES ('rights_nobody', 'n'), ('rights_of_a_column', 'n'), ('rights_reader', 'r'),
	('rights_scans', 's'), ('rights_monitor', 'm'), ('rights_owner', 'o')) r(role, short)
ORDER BY m.function, role;
DROP OWNED BY rights_nobody, rights_reader, rights_of_a_column, rights_scans, rights_monitor,
	rights_owner CASCADE;
DROP ROLE rights_nobody, rights_reader, rights_of_a_column, rights_scans, rights_monitor,
	rights_owner;
SELECT * FROM finish();
