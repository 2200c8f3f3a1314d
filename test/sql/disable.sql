-- gpugraph.disable: names are checked, in every place that settings come from
LOAD 'gpugraph';
SHOW gpugraph.disable;
SET gpugraph.disable = 'sort_keys, BITMAP_FILTER';
SET gpugraph.disable = rank_order, told_sets;
SHOW gpugraph.disable;
SET gpugraph.disable = 'sort_keys, sorting';
SELECT set_config('gpugraph.disable', 'sort_keys sort_keys', false);
SHOW gpugraph.disable;
CREATE FUNCTION wrong() RETURNS int LANGUAGE sql SET gpugraph.disable = nothing AS 'SELECT 1';
CREATE FUNCTION kept() RETURNS text LANGUAGE sql SET gpugraph.disable = semi_joins
	AS $$ SELECT current_setting('gpugraph.disable') $$;
SELECT kept(), current_setting('gpugraph.disable');
SET gpugraph.disable = '';
DO $$ BEGIN SET gpugraph.disable = sorting; EXCEPTION WHEN invalid_parameter_value THEN
	RAISE NOTICE 'SQLSTATE %', SQLSTATE; END $$;

-- what version 1.1 had still draws a warning, and has no effect
SET gpugraph.skip_unread_distance = off;
CREATE FUNCTION old() RETURNS int LANGUAGE sql SET gpugraph.skip_unread_distance = on
	AS 'SELECT 1';
SELECT old();
RESET gpugraph.skip_unread_distance;
CREATE ROLE of_old;
ALTER ROLE of_old SET gpugraph.skip_unread_distance = off;
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET gpugraph.skip_unread_distance = off',
	current_database()); END $$;
\c -
LOAD 'gpugraph';
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET gpugraph.skip_unread_distance',
	current_database()); END $$;
-- what goes with version 1.3 warns, and works until then
SET gpugraph.max_scan_tuples = 100;
CREATE FUNCTION old_too() RETURNS text LANGUAGE sql SET gpugraph.max_scan_tuples = 7
	AS $$ SELECT current_setting('gpugraph.max_scan_tuples') $$;
SELECT old_too(), current_setting('gpugraph.max_scan_tuples');
RESET gpugraph.max_scan_tuples;
ALTER ROLE of_old SET gpugraph.max_scan_tuples = 5;
DROP ROLE of_old;
DROP FUNCTION old, old_too, kept;
