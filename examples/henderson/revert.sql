-- Takes amend.sql back.
BEGIN IMMEDIATE;
UPDATE contracts SET threshold_cents = 2500000, revision = revision + 1 WHERE contract_id = 'CT-2001';
UPDATE orders SET discount_cents = 0, total_cents = 1840000 WHERE order_id = 'SO-12009';
UPDATE invoices SET amount_cents = 1840000 WHERE invoice_id = 'INV-12009';
COMMIT;
