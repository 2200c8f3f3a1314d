-- The official image runs this when it makes a new cluster, in the database POSTGRES_DB.
CREATE EXTENSION gpugraph CASCADE;
