-- The author's tables: authorings, what was proposed and judged, what was kept.
-- depends:

CREATE SCHEMA author;

CREATE TABLE author.authorings (
  authoring_id text PRIMARY KEY,
  domain text NOT NULL,
  domain_digest text NOT NULL,
  request jsonb NOT NULL,
  state text NOT NULL CHECK (state IN ('running', 'done', 'failed')),
  error text NOT NULL DEFAULT '',
  task_set_digest text NOT NULL DEFAULT '',
  result jsonb,
  created_at timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz
);

CREATE INDEX authorings_of_domain ON author.authorings (domain, finished_at) WHERE state = 'done';

-- every proposal with the verdict of the gates that see one gold at a time, as it lands
CREATE TABLE author.proposals (
  authoring_id text NOT NULL REFERENCES author.authorings ON DELETE CASCADE,
  position integer NOT NULL,
  archetype text NOT NULL,
  gold text NOT NULL,
  order_matters boolean NOT NULL,
  phrasings jsonb NOT NULL,
  reason text,  -- NULL = passed
  PRIMARY KEY (authoring_id, position)
);

-- what an authoring kept, written once when it is done; the gold lies apart from what anyone may see
CREATE TABLE author.tasks (
  authoring_id text NOT NULL REFERENCES author.authorings ON DELETE CASCADE,
  position integer NOT NULL,
  task_id text NOT NULL,
  split text NOT NULL,
  task jsonb NOT NULL,
  reference text NOT NULL,
  PRIMARY KEY (authoring_id, task_id)
);
