-- The year 2026 as of 30 November: orders, the invoices they led to, and what was paid.
--
-- Amounts and dates are drawn from arithmetic on account and order numbers, never from random(), so that every copy of
-- this database is the same. Discounts are not drawn: they follow from the contract in force on the day of the order.

-- Henderson's orders are written out, because the example in examples/henderson turns on them: none but the last lies
-- between 15,000 and 25,000 dollars.
CREATE TEMP TABLE placed (account_id TEXT, order_id TEXT, ordered_on TEXT, subtotal_cents INTEGER);

INSERT INTO placed VALUES
    ('henderson', 'SO-12001', '2026-01-19',  964000),
    ('henderson', 'SO-12002', '2026-02-24', 2715000),
    ('henderson', 'SO-12003', '2026-04-02', 1120050),
    ('henderson', 'SO-12004', '2026-05-11', 3080000),
    ('henderson', 'SO-12005', '2026-06-23',  748020),
    ('henderson', 'SO-12006', '2026-08-04', 1390000),
    ('henderson', 'SO-12007', '2026-09-15', 2604500),
    ('henderson', 'SO-12008', '2026-10-20', 1215000),
    ('henderson', 'SO-12009', '2026-11-18', 1840000);

WITH RECURSIVE
    counter (k) AS (VALUES (1) UNION ALL SELECT k + 1 FROM counter WHERE k < 10),
    -- Between five and ten orders each.
    placing AS (SELECT account_id, account_no, segment, 5 + (account_no * 7) % 6 AS n FROM accounts),
    drawn AS (
        SELECT
            account_id,
            account_no,
            k,
            -- Spread over the year, on Mondays to Fridays.
            date('2026-01-05', '+' || (k * 322 / n - (account_no * 5 + k * 11) % 28) || ' days', 'weekday 1',
                '-7 days', '+' || ((account_no + k * 2) % 5) || ' days') AS ordered_on,
            -- Between 45 and 155 percent of what is usual in the segment, to the cent.
            CASE segment WHEN 'enterprise' THEN 52000 WHEN 'mid_market' THEN 15500 ELSE 3900 END
                * (45 + (account_no * 37 + k * 53) % 111)
                + 5 * ((account_no * 13 + k * 7) % 20) AS subtotal_cents
        FROM placing, counter
        WHERE account_id <> 'henderson' AND k <= n
    )
INSERT INTO placed
SELECT account_id, 'SO-' || (10000 + account_no * 100 + k), ordered_on, subtotal_cents FROM drawn;

INSERT INTO orders (order_id, account_id, ordered_on, status, subtotal_cents, discount_cents, total_cents)
SELECT order_id, account_id, ordered_on, status, subtotal_cents, discount_cents, subtotal_cents - discount_cents
FROM (
    SELECT
        p.order_id,
        p.account_id,
        p.ordered_on,
        CASE
            WHEN p.account_id <> 'henderson' AND substr(p.order_id, 4) % 31 = 7 THEN 'cancelled'
            WHEN p.ordered_on <= '2026-11-13' THEN 'delivered'
            WHEN p.ordered_on <= '2026-11-24' THEN 'shipped'
            ELSE 'open'
        END AS status,
        p.subtotal_cents,
        -- To the nearest cent, half a cent up.
        CASE WHEN p.subtotal_cents >= c.threshold_cents THEN (p.subtotal_cents * c.discount_percent + 50) / 100
             ELSE 0 END AS discount_cents
    FROM placed p
    LEFT JOIN contracts c
        ON c.account_id = p.account_id
        AND p.ordered_on BETWEEN c.effective_from AND coalesce(c.effective_to, '9999-12-31')
)
ORDER BY order_id;

DROP TABLE placed;

-- Invoiced two days after the order; without a contract payment is due in 14 days.
INSERT INTO invoices (invoice_id, order_id, account_id, issued_on, due_on, amount_cents)
SELECT
    'INV-' || substr(o.order_id, 4),
    o.order_id,
    o.account_id,
    date(o.ordered_on, '+2 days'),
    date(o.ordered_on, '+2 days', '+' || coalesce(c.payment_terms_days, 14) || ' days'),
    o.total_cents
FROM orders o
LEFT JOIN contracts c
    ON c.account_id = o.account_id
    AND o.ordered_on BETWEEN c.effective_from AND coalesce(c.effective_to, '9999-12-31')
WHERE o.status <> 'cancelled' AND date(o.ordered_on, '+2 days') <= '2026-11-30'
ORDER BY o.order_id;

-- Paid from nine days before to eleven days after it is due, one invoice in nine in two parts; what would arrive after
-- 30 November is still open.
WITH
    due AS (
        SELECT
            i.*,
            substr(i.invoice_id, 5) + 0 AS n,
            date(i.due_on, ((substr(i.invoice_id, 5) * 5) % 21 - 9) || ' days') AS first_on
        FROM invoices i
    ),
    part AS (
        SELECT invoice_id, account_id, n, 1 AS part, first_on AS received_on,
            CASE WHEN n % 9 = 0 THEN amount_cents * 60 / 100 ELSE amount_cents END AS amount_cents
        FROM due
        UNION ALL
        SELECT invoice_id, account_id, n, 2, date(first_on, '+12 days'), amount_cents - amount_cents * 60 / 100
        FROM due
        WHERE n % 9 = 0
    )
INSERT INTO payments (payment_id, invoice_id, account_id, received_on, method, amount_cents)
SELECT
    'PAY-' || n || '-' || part,
    invoice_id,
    account_id,
    received_on,
    CASE (n / 100) % 4 WHEN 0 THEN 'wire' WHEN 1 THEN 'direct_debit' WHEN 2 THEN 'wire' ELSE 'check' END,
    amount_cents
FROM part
WHERE received_on <= '2026-11-30'
ORDER BY n, part;
