-- The sales team's own database: what they note about customers, beside contract terms that are copied from Atlas every
-- night. Whatever was amended since is not in it.
CREATE TABLE customer_cards (
    account_id       TEXT PRIMARY KEY,
    relationship     TEXT NOT NULL,
    next_step        TEXT NOT NULL,
    threshold_cents  INTEGER NOT NULL,
    copied_at        TEXT NOT NULL
) STRICT;

INSERT INTO customer_cards VALUES
    ('arcadia',    'good',    'Renewal talk in March',              4000000, '2026-11-30T02:00:00Z'),
    ('bellwether', 'good',    'Offer the spring delivery plan',     4500000, '2026-11-30T02:00:00Z'),
    ('calder',     'at risk', 'Visit about the late pumps',         1800000, '2026-11-30T02:00:00Z'),
    ('henderson',  'good',    'Lower the threshold as agreed',      2500000, '2026-11-30T02:00:00Z'),
    ('vantage',    'new',     'Show the ordering portal',           2400000, '2026-11-30T02:00:00Z');
