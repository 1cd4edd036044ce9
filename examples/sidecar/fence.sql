-- once: the greatest token that was seen of each role
CREATE TABLE IF NOT EXISTS fences (name TEXT PRIMARY KEY, token BIGINT NOT NULL);

-- when a role is granted, before anything is read or written under its token; no row: stop, a later holder was here
INSERT INTO fences (name, token) VALUES (:role, :token)
ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE fences.token <= excluded.token
RETURNING token;

-- the last statement before each COMMIT; no row: ROLLBACK, and stop
SELECT token FROM fences WHERE name = :role AND token = :token FOR SHARE;
