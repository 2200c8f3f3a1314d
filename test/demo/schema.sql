-- elements: how many a vector has
CREATE EXTENSION vector;
CREATE EXTENSION gpugraph;
CREATE TABLE packages (name text, section text, summary text, embedding vector(:elements));
CREATE TABLE held (LIKE packages);
CREATE TABLE texts (text text, embedding vector(:elements));
CREATE TABLE questions (text text, expected text, embedding vector(:elements));
CREATE TABLE asked (position serial, label text, summary text, embedding vector(:elements));
