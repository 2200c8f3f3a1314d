-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION gpugraph UPDATE TO '1.2.0'" to load this file. \quit
