CREATE EXTENSION vector;
CREATE EXTENSION gpugraph;
CREATE TABLE packages (name text, summary text, embedding vector(256));
CREATE TABLE held (name text, summary text, embedding vector(256));
CREATE TABLE texts (text text, embedding vector(256));
CREATE TABLE asked (position serial, label text, summary text, embedding vector(256));
