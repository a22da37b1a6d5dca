-- A table of many rows, indexed, joined, grouped, ordered, windowed and changed.
-- Deterministic: the "random" columns are a linear congruence of the row number.
.bail on
PRAGMA cache_size = -65536;
PRAGMA temp_store = MEMORY;
PRAGMA threads = 2;
CREATE TABLE event(id INTEGER PRIMARY KEY, kind INTEGER, amount INTEGER, name TEXT, note TEXT);
WITH RECURSIVE counter(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < ROWS)
INSERT INTO event
SELECT n, (n * 7919) % 101, (n * 1103515245 + 12345) % 1000003,
       printf('name %d of %x', n % 5000, n * 2654435761 % 4294967296),
       substr('the quick brown fox jumps over the lazy dog and runs away', 1, n % 57)
FROM counter;
CREATE INDEX by_amount ON event(amount);
CREATE INDEX by_name ON event(name, kind);
SELECT count(*), sum(amount), min(name), max(name), total(length(note)) FROM event;
SELECT kind, count(*), avg(amount), group_concat(DISTINCT length(note)) FROM event
GROUP BY kind ORDER BY kind;
SELECT a.id, b.id, a.name FROM event a JOIN event b ON b.amount = a.amount AND b.id > a.id
WHERE a.kind = 5 ORDER BY a.id, b.id LIMIT 2000;
SELECT id, amount, rank() OVER (PARTITION BY kind ORDER BY amount DESC, id) AS place FROM event
WHERE kind < 4 ORDER BY kind, place LIMIT 3000;
SELECT name FROM event WHERE name LIKE '%face%' ORDER BY name LIMIT 500;
UPDATE event SET note = note || ' and ' || name WHERE kind % 10 = 3;
DELETE FROM event WHERE amount % 7 = 0;
SELECT json_group_array(json_object('kind', kind, 'n', n)) FROM
  (SELECT kind, count(*) AS n FROM event GROUP BY kind ORDER BY kind);
SELECT length(group_concat(name, '/')) FROM event WHERE kind = 50;
VACUUM;
PRAGMA integrity_check;
SELECT count(*), sum(amount), sum(length(note)) FROM event;
