-- Inference: every adapter ever published. A name is never reused for other weights.

CREATE SCHEMA inference;

CREATE TABLE inference.adapters (
    name           text PRIMARY KEY,
    run_id         text NOT NULL,
    step           integer NOT NULL,
    uri            text NOT NULL,
    base           text NOT NULL,
    digest         text NOT NULL,
    config_digest  text,                    -- SHA-256 of adapter_config.json; alpha changes what the tensors mean
    kind           text NOT NULL,
    probe_request  jsonb NOT NULL,          -- the publisher's sequences: every load must reproduce them
    state          text NOT NULL,
    reason         text NOT NULL DEFAULT '',
    tensors_placed integer NOT NULL DEFAULT 0,
    probe          jsonb,
    load_ms        double precision,
    folder         text,                    -- what the engines read while it is loaded
    removed        boolean NOT NULL DEFAULT false,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now()
);
