-- Inference: adapters that are never unloaded for another's sake, and the stable names that applications call.

ALTER TABLE inference.adapters
    ADD COLUMN pinned     boolean NOT NULL DEFAULT false,
    ADD COLUMN translated boolean NOT NULL DEFAULT false;  -- its files were rewritten in the base's names

CREATE TABLE inference.alias_moves (
    move_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alias    text NOT NULL,
    policy   text NOT NULL,
    model    text NOT NULL,                  -- the served name
    delta    jsonb NOT NULL,                 -- the measured gain that it was moved for
    undone   boolean NOT NULL DEFAULT false, -- rolled back: the alias is where the newest other move put it
    moved_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX alias_moves_newest ON inference.alias_moves (alias, move_id DESC) WHERE NOT undone;
