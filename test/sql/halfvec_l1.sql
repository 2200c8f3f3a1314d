-- halfvec_l1_ops, from CREATE INDEX to TRUNCATE
\getenv abs_srcdir PG_ABS_SRCDIR
\set file :abs_srcdir '/sql/include/opclass.psql'
\set type halfvec
\set ops halfvec_l1_ops
\set op <+>
\i :file
