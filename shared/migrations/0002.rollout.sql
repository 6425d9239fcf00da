-- Rollout: the ledger of samplings, their pinned tasks, rows, losses; training batches' fence; bands.

CREATE SCHEMA rollout;

CREATE TABLE rollout.samplings (
    sampling_id     text PRIMARY KEY,
    request         jsonb NOT NULL,
    purpose         text NOT NULL,
    domain          text NOT NULL,
    policy_name     text NOT NULL,
    adapter_digest  text NOT NULL,
    task_set_digest text NOT NULL,
    system_prompt   text NOT NULL,
    prompt_hash     text NOT NULL,
    state           text NOT NULL,
    error           text NOT NULL DEFAULT '',
    void_reason     text,
    wanted          integer NOT NULL,
    landed          integer NOT NULL DEFAULT 0,
    tokens          bigint NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    finished_at     timestamptz
);

-- The tasks a sampling asks, pinned when it starts: a later authoring changes nothing of it. No golds.
CREATE TABLE rollout.groups (
    sampling_id      text NOT NULL REFERENCES rollout.samplings ON DELETE CASCADE,
    task_id          text NOT NULL,
    position         integer NOT NULL,
    question         text NOT NULL,
    archetype        text NOT NULL,
    difficulty       text NOT NULL,
    style            text NOT NULL,
    split            text NOT NULL,
    prompt_token_ids integer[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (sampling_id, task_id)
);

CREATE TABLE rollout.rows (
    row_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sampling_id    text NOT NULL,
    task_id        text NOT NULL,
    sample_index   integer NOT NULL,
    reply          text NOT NULL,
    thought        boolean NOT NULL,
    token_ids      integer[] NOT NULL,
    tokens         integer GENERATED ALWAYS AS (cardinality(token_ids)) STORED,
    logprobs       double precision[] NOT NULL,
    finish_reason  text NOT NULL,
    sample_ms      double precision NOT NULL,
    verify_ms      double precision NOT NULL,
    status         text NOT NULL,
    reward         double precision,
    sql            text,
    reason         text NOT NULL,
    served_model   text NOT NULL,
    adapter_digest text NOT NULL,
    landed_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (sampling_id, task_id, sample_index),
    FOREIGN KEY (sampling_id, task_id) REFERENCES rollout.groups ON DELETE CASCADE
);

CREATE TABLE rollout.rerolls (
    sampling_id text NOT NULL REFERENCES rollout.samplings ON DELETE CASCADE,
    reason      text NOT NULL,
    samples     integer NOT NULL,
    PRIMARY KEY (sampling_id, reason)
);

CREATE TABLE rollout.losses (
    sampling_id text NOT NULL REFERENCES rollout.samplings ON DELETE CASCADE,
    task_id     text NOT NULL,
    reason      text NOT NULL,
    detail      text NOT NULL,
    samples     integer NOT NULL,
    PRIMARY KEY (sampling_id, task_id)
);

-- The newest attempt of each training run; an older one may not write.
CREATE TABLE rollout.fences (
    run_id  text PRIMARY KEY,
    attempt integer NOT NULL
);

CREATE TABLE rollout.batches (
    run_id      text NOT NULL,
    step        integer NOT NULL,
    attempt     integer NOT NULL,
    sampling_id text NOT NULL REFERENCES rollout.samplings,
    PRIMARY KEY (run_id, step)
);

CREATE TABLE rollout.bands (
    band_id text PRIMARY KEY,
    request jsonb NOT NULL,
    band    jsonb NOT NULL,
    cut_at  timestamptz NOT NULL DEFAULT now()
);
