-- What customers wrote. Henderson's tickets are written out; the others are drawn like the orders.

INSERT INTO tickets (ticket_id, account_id, order_id, opened_on, closed_on, priority, subject, body) VALUES
    ('T-2001', 'henderson', 'SO-12004', '2026-05-20', '2026-05-22', 'normal',
     'Packing list missing', 'Two of five pallets of SO-12004 came without a packing list. Please send them again.'),
    ('T-2002', 'henderson', NULL, '2026-10-29', NULL, 'normal',
     'Lower discount threshold', 'Your account manager agreed to lower the volume threshold of our contract from 25,000 to 15,000. When will it be in force?'),
    ('T-2003', 'henderson', 'SO-12009', '2026-11-23', NULL, 'high',
     'Discount on SO-12009', 'SO-12009 was billed at the list price. Please apply the 12 percent once the amended contract is in force.');

WITH
    kind (n, priority, subject, body, days) AS (
        VALUES
            (0, 'normal', 'Delivery date',     'When will {order} arrive? The portal shows no date.',               2),
            (1, 'low',    'Copy of invoice',   'Please send the invoice of {order} once more as PDF.',              1),
            (2, 'high',   'Damaged goods',     'Part of {order} arrived damaged. Photos are attached.',            11),
            (3, 'normal', 'Wrong quantity',    '{order} is short of what the delivery note says.',                  7),
            (4, 'low',    'Change of address', 'From the next order on please deliver to our new warehouse.',       3),
            (5, 'normal', 'Discount question', 'Which threshold of our contract was applied to {order}?',           4),
            (6, 'high',   'Order not shipped', '{order} is urgent and has not been shipped. Can it be expedited?',  5)
    ),
    asked AS (
        SELECT
            o.*,
            substr(o.order_id, 4) + 0 AS n,
            date(o.ordered_on, '+' || (4 + (substr(o.order_id, 4) * 3) % 9) || ' days') AS opened_on
        FROM orders o
        -- About every third order leads to a ticket.
        WHERE o.account_id <> 'henderson' AND (substr(o.order_id, 4) * 7) % 10 < 3
    )
INSERT INTO tickets (ticket_id, account_id, order_id, opened_on, closed_on, priority, subject, body)
SELECT
    'T-' || (a.n - 10000 + 3000),
    a.account_id,
    a.order_id,
    a.opened_on,
    CASE WHEN date(a.opened_on, '+' || k.days || ' days') <= '2026-11-30'
        THEN date(a.opened_on, '+' || k.days || ' days') END,
    k.priority,
    k.subject,
    replace(k.body, '{order}', a.order_id)
FROM asked a
JOIN kind k ON k.n = (a.n / 100 + a.n) % 7
WHERE a.opened_on <= '2026-11-30'
ORDER BY a.n;
