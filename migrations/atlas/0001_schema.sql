-- Atlas: what a company that sells to companies keeps about its customers.
--
-- Money is whole cents of US dollars in INTEGER columns, named ..._cents: SQLite has no decimal type, a REAL can't hold
-- 0.1, and decimal text can't be added up or compared. Dates are ISO 8601 text, which sorts as it should.

CREATE TABLE accounts (
    account_id  TEXT PRIMARY KEY,
    -- Numbers the account; its orders are numbered within it.
    account_no  INTEGER NOT NULL UNIQUE,
    name        TEXT NOT NULL,
    segment     TEXT NOT NULL CHECK (segment IN ('enterprise', 'mid_market', 'small')),
    industry    TEXT NOT NULL,
    city        TEXT NOT NULL,
    country     TEXT NOT NULL,
    owner       TEXT NOT NULL,
    created_on  TEXT NOT NULL
) STRICT;

-- A volume discount: an order of at least threshold_cents, placed while the contract is in force, costs
-- discount_percent less. An account has at most one contract in force on a day.
CREATE TABLE contracts (
    contract_id         TEXT PRIMARY KEY,
    account_id          TEXT NOT NULL REFERENCES accounts (account_id),
    discount_percent    INTEGER NOT NULL CHECK (discount_percent BETWEEN 0 AND 100),
    threshold_cents     INTEGER NOT NULL CHECK (threshold_cents >= 0),
    payment_terms_days  INTEGER NOT NULL CHECK (payment_terms_days > 0),
    effective_from      TEXT NOT NULL,
    -- The last day; NULL while no end is agreed.
    effective_to        TEXT CHECK (effective_to IS NULL OR effective_to >= effective_from),
    -- Counts amendments.
    revision            INTEGER NOT NULL DEFAULT 1
) STRICT;

CREATE TABLE orders (
    order_id        TEXT PRIMARY KEY,
    account_id      TEXT NOT NULL REFERENCES accounts (account_id),
    ordered_on      TEXT NOT NULL,
    status          TEXT NOT NULL CHECK (status IN ('open', 'shipped', 'delivered', 'cancelled')),
    subtotal_cents  INTEGER NOT NULL CHECK (subtotal_cents > 0),
    discount_cents  INTEGER NOT NULL CHECK (discount_cents BETWEEN 0 AND subtotal_cents),
    total_cents     INTEGER NOT NULL CHECK (total_cents = subtotal_cents - discount_cents)
) STRICT;

CREATE TABLE invoices (
    invoice_id    TEXT PRIMARY KEY,
    order_id      TEXT NOT NULL UNIQUE REFERENCES orders (order_id),
    account_id    TEXT NOT NULL REFERENCES accounts (account_id),
    issued_on     TEXT NOT NULL,
    due_on        TEXT NOT NULL CHECK (due_on >= issued_on),
    amount_cents  INTEGER NOT NULL CHECK (amount_cents >= 0)
) STRICT;

CREATE TABLE payments (
    payment_id    TEXT PRIMARY KEY,
    invoice_id    TEXT NOT NULL REFERENCES invoices (invoice_id),
    account_id    TEXT NOT NULL REFERENCES accounts (account_id),
    received_on   TEXT NOT NULL,
    method        TEXT NOT NULL CHECK (method IN ('wire', 'direct_debit', 'check', 'card')),
    amount_cents  INTEGER NOT NULL CHECK (amount_cents > 0)
) STRICT;

CREATE TABLE tickets (
    ticket_id   TEXT PRIMARY KEY,
    account_id  TEXT NOT NULL REFERENCES accounts (account_id),
    order_id    TEXT REFERENCES orders (order_id),
    opened_on   TEXT NOT NULL,
    closed_on   TEXT CHECK (closed_on IS NULL OR closed_on >= opened_on),
    priority    TEXT NOT NULL CHECK (priority IN ('low', 'normal', 'high')),
    subject     TEXT NOT NULL,
    body        TEXT NOT NULL
) STRICT;

CREATE INDEX contracts_by_account ON contracts (account_id, effective_from);
CREATE INDEX orders_by_account ON orders (account_id, ordered_on);
CREATE INDEX invoices_by_account ON invoices (account_id, issued_on);
CREATE INDEX payments_by_invoice ON payments (invoice_id);
CREATE INDEX tickets_by_account ON tickets (account_id, opened_on);
