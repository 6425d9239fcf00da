-- What a teacher's model was asked, what it replied and what that cost; runs that stop short and go on; sets that grow.
-- depends: 0001.author

ALTER TABLE author.authorings DROP CONSTRAINT authorings_state_check;
ALTER TABLE author.authorings ADD CONSTRAINT authorings_state_check
  CHECK (state IN ('running', 'done', 'failed', 'stopped', 'cancelled'));

ALTER TABLE author.authorings
  ADD COLUMN weights jsonb NOT NULL DEFAULT '{}',  -- archetype to share, as resolved when it was created
  ADD COLUMN extends text;  -- the authoring whose tasks this one's are added to

-- a set that was published stays current while its authoring goes on
DROP INDEX author.authorings_of_domain;
CREATE INDEX authorings_of_domain ON author.authorings (domain, finished_at) WHERE finished_at IS NOT NULL;

-- what the teacher says of its proposal beside question and gold
ALTER TABLE author.proposals
  ADD COLUMN columns jsonb NOT NULL DEFAULT '[]',
  ADD COLUMN difficulty text;

-- every call, written before it is sent and again when its reply lands; the reply holds golds
CREATE TABLE author.calls (
  authoring_id text NOT NULL REFERENCES author.authorings ON DELETE CASCADE,
  call_key text NOT NULL,
  purpose text NOT NULL CHECK (purpose IN ('propose', 'attempt')),
  number integer NOT NULL,
  archetype text,
  difficulty text,
  proposals integer NOT NULL,
  prompt_hash text NOT NULL,  -- SHA-256 of the whole prompt
  request text NOT NULL,  -- the part of the prompt that is this call's own
  state text NOT NULL CHECK (state IN ('sent', 'withdrawn', 'landed')),
  model text NOT NULL DEFAULT '',
  reply text NOT NULL DEFAULT '',  -- grows while it arrives
  outcome text,
  usage jsonb,  -- tokens, each counted in one place only
  cost_usd double precision,  -- NULL: not landed, or the model's price is unknown
  doubt_usd double precision NOT NULL DEFAULT 0,  -- at most so much more was billed for sendings that no one saw the end of
  doubts integer NOT NULL DEFAULT 0,
  sent_at timestamptz NOT NULL DEFAULT now(),
  landed_at timestamptz,
  PRIMARY KEY (authoring_id, call_key)
);
