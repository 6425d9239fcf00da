-- What figures need of a row beside its verdict; rows of models that other people serve; what a verdict rested on.
-- depends: 0002.rollout

ALTER TABLE rollout.rows
  ADD COLUMN sqlstate text,  -- of an sql_error
  ADD COLUMN reported_tokens integer;  -- reply tokens as an endpoint counts them; NULL where token_ids are known

ALTER TABLE rollout.samplings ADD COLUMN bundle_digest text NOT NULL DEFAULT '';  -- '': started before this was kept
