-- What sales agreed with Henderson, in one transaction: the discount is due from 15,000 dollars on instead of 25,000, and
-- the order that waited for it is billed anew. There is no moment at which one is true without the other.
--
-- revert.sql is the way back. The revision counts up both ways, so that no state of the contract ever returns.
BEGIN IMMEDIATE;
UPDATE contracts SET threshold_cents = 1500000, revision = revision + 1 WHERE contract_id = 'CT-2001';
UPDATE orders SET discount_cents = 220800, total_cents = 1619200 WHERE order_id = 'SO-12009';
UPDATE invoices SET amount_cents = 1619200 WHERE invoice_id = 'INV-12009';
COMMIT;
