-- What the gates saw of a proposal, golds that several queries answer, and what people decided.
-- depends: 0001.author

ALTER TABLE author.proposals
  ADD COLUMN alternatives jsonb NOT NULL DEFAULT '[]',  -- further acceptable golds
  ADD COLUMN split text,  -- what an imported task keeps; NULL = its gold decides
  ADD COLUMN evidence jsonb NOT NULL DEFAULT '{}';  -- reasons by phrasing, results by gold, edits

-- a text, or a list of acceptable ones
ALTER TABLE author.tasks
  ALTER COLUMN reference TYPE jsonb USING to_jsonb(reference),
  ADD COLUMN results jsonb NOT NULL DEFAULT '[]';  -- what its golds returned, by which other golds are told apart

-- one line a decision, never changed: the newest of a question counts, in this authoring and in those to come
CREATE TABLE author.decisions (
  decision_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  domain text NOT NULL,
  task_id text NOT NULL,  -- of the question as it was proposed
  action text NOT NULL CHECK (action IN ('accept', 'reject', 'edit')),
  question text NOT NULL,
  edited jsonb,  -- the proposal that replaces it, with its verdict; NULL unless edited
  decided_by text NOT NULL,
  note text NOT NULL DEFAULT '',
  decided_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX decisions_of_domain ON author.decisions (domain, task_id, decision_id);
