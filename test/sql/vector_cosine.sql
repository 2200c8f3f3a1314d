-- vector_cosine_ops, from CREATE INDEX to TRUNCATE
\getenv abs_srcdir PG_ABS_SRCDIR
\set file :abs_srcdir '/sql/include/opclass.psql'
\set type vector
\set ops vector_cosine_ops
\set op <=>
\i :file
