-- What a session keeps of the pivots of segments that it walks
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE FUNCTION val_of(id int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	$$ SELECT array_agg(sin(id * (0.37 + j * 0.11)) ORDER BY j)::vector
		FROM generate_series(1, 32) j $$;
CREATE TABLE items (id int, val vector(32));
INSERT INTO items SELECT i, val_of(i) FROM generate_series(1, 6000) i;
CREATE TABLE others AS SELECT id, val FROM items WHERE id <= 5000;
CREATE TABLE third AS SELECT id, val FROM others WHERE id <= 4900;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (storage = 'float32+int8');
CREATE INDEX others_idx ON others USING gpugraph (val vector_l2_ops);
CREATE INDEX third_idx ON third USING gpugraph (val vector_l2_ops);
SET enable_seqscan = off;
SET enable_sort = off;
SET gpugraph.engine = cpu;

CREATE FUNCTION kept() RETURNS bigint LANGUAGE sql AS $$
	SELECT coalesce(sum(used_bytes), 0)::bigint FROM pg_backend_memory_contexts
	WHERE name = 'gpugraph pivots'
$$;
-- the nearest 20 of some rows, with what the walk does with codes and without
CREATE FUNCTION answers(t regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	all_answers text := '';
	answer text;
BEGIN
	FOR q IN 1 .. 5000 BY 250 LOOP
		EXECUTE format('SELECT string_agg(id::text, '' '') FROM (SELECT id FROM %s
			ORDER BY val <-> val_of(%s) LIMIT 20) n', t, q) INTO answer;
		all_answers := all_answers || answer || E'\n';
	END LOOP;
	RETURN all_answers;
END $$;
CREATE FUNCTION exact_answers(t regclass) RETURNS text LANGUAGE sql AS $$
	SET LOCAL enable_indexscan = off; SET LOCAL enable_sort = on; SET LOCAL enable_seqscan = on;
	SELECT answers(t)
$$;

SELECT is(kept(), 0::bigint, 'nothing is kept before the first walk');
SELECT answers('items') AS first, exact_answers('items') AS exact \gset
SELECT is(:'first'::text, :'exact'::text, 'the first walks, which fill it, find all');
SELECT cmp_ok(kept(), '>', 20000::bigint, 'the pivots are kept');
SELECT kept() AS one \gset
SELECT is(answers('items'), :'exact'::text, 'later ones find all, too');
SELECT is(kept(), :one::bigint, 'and keep no more');
SELECT is(answers('others'), exact_answers('others'), 'those of another index are others');
SELECT cmp_ok(kept(), '>', :one::bigint + 20000, 'both are kept');

-- a new version of the index has other pivots
INSERT INTO items SELECT -i, val_of(i + 20000) FROM generate_series(1, 3000) i;
SELECT gpugraph_merge('items_idx') AS merged \gset
SELECT is(answers('items'), exact_answers('items'), 'after a merge the new ones are read');
DELETE FROM items WHERE id < 0;
REINDEX INDEX items_idx;
SELECT is(answers('items'), :'exact'::text, 'after a REINDEX, too');

-- no more than a hash may take, this transaction's own not given up
SELECT cmp_ok(kept(), '>', 90000::bigint, 'former versions are kept');
SET work_mem = '64kB';
SET hash_mem_multiplier = 1;
BEGIN;
SELECT is(answers('third'), exact_answers('third'), 'a third one where memory is short');
SELECT cmp_ok(kept(), '<', 65536::bigint + 20000, 'what is not in use has gone');
SELECT is(answers('others'), exact_answers('others'), 'another one beside it');
SELECT is(answers('third'), exact_answers('third'), 'and the first again');
SELECT cmp_ok(kept(), '<', 65536::bigint + 20000, 'take no more together');
COMMIT;
RESET work_mem;
SELECT is(answers('items'), :'exact'::text, 'with memory again');

SELECT * FROM finish();
