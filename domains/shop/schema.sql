-- An online store in Europe, 2023-01-01 to 2024-12-31. Money is in euros. Names end in _on for dates, _at for timestamps.

-- who the store buys from
CREATE TABLE suppliers (
  supplier_id integer PRIMARY KEY,
  supplier_name text NOT NULL UNIQUE,
  origin text NOT NULL,            -- country: China, Germany, Italy, Poland, Sweden, Turkey
  lead_days integer CHECK (lead_days >= 0)  -- days from order to delivery; NULL = not agreed
);

-- product categories in two levels
CREATE TABLE categories (
  category_id integer PRIMARY KEY,
  category_name text NOT NULL UNIQUE,
  parent_id integer REFERENCES categories (category_id)  -- NULL = top-level category
);

CREATE TABLE products (
  product_id integer PRIMARY KEY,
  product_name text NOT NULL UNIQUE,
  category_id integer NOT NULL REFERENCES categories (category_id),  -- always a second-level category
  supplier_id integer REFERENCES suppliers (supplier_id),            -- NULL = made by the store itself
  price numeric(10,2) NOT NULL CHECK (price >= 0),          -- list price today
  unit_cost numeric(10,2) NOT NULL CHECK (unit_cost >= 0),  -- what one unit costs the store
  stock integer NOT NULL CHECK (stock >= 0),                -- units in the warehouses
  color text,                                       -- black, blue, green, red, white; NULL = comes in one look only
  weight_kg numeric(6,2) CHECK (weight_kg > 0),     -- NULL = never weighed
  launched_on date NOT NULL,
  retired_on date CHECK (retired_on >= launched_on) -- NULL = still sold
);

CREATE TABLE employees (
  employee_id integer PRIMARY KEY,
  employee_name text NOT NULL UNIQUE,
  team text NOT NULL,              -- board, finance, logistics, sales, support
  manager_id integer REFERENCES employees (employee_id),  -- NULL = head of the company
  salary numeric(10,2) NOT NULL CHECK (salary > 0),       -- per year
  hired_on date NOT NULL,
  quit_on date CHECK (quit_on >= hired_on)                -- NULL = still employed
);

CREATE TABLE customers (
  customer_id integer PRIMARY KEY,
  customer_name text NOT NULL,
  country text NOT NULL,           -- Austria, Belgium, Denmark, France, Germany, Spain
  city text NOT NULL,              -- two cities a country
  segment text NOT NULL CHECK (segment IN ('business', 'private', 'school')),
  newsletter boolean,              -- NULL = never asked
  referrer_id integer REFERENCES customers (customer_id),  -- customer who brought this one; NULL = came alone
  joined_on date NOT NULL
);

CREATE TABLE coupons (
  coupon_id integer PRIMARY KEY,
  code text NOT NULL UNIQUE,
  percent_off integer NOT NULL CHECK (percent_off BETWEEN 1 AND 100),
  starts_on date NOT NULL,
  ends_on date CHECK (ends_on >= starts_on)  -- NULL = does not end
);

CREATE TABLE orders (
  order_id integer PRIMARY KEY,
  customer_id integer NOT NULL REFERENCES customers (customer_id),
  employee_id integer REFERENCES employees (employee_id),  -- who took the order; NULL = nobody, it came in by itself
  coupon_id integer REFERENCES coupons (coupon_id),        -- NULL = no coupon used
  channel text NOT NULL CHECK (channel IN ('app', 'market', 'phone', 'web')),
  status text NOT NULL CHECK (status IN ('pending', 'paid', 'shipped', 'delivered', 'cancelled')),
  freight numeric(10,2) NOT NULL CHECK (freight >= 0),     -- shipping charged to the customer; 0 = free shipping
  ordered_on date NOT NULL
);

-- the lines of an order
CREATE TABLE items (
  item_id integer PRIMARY KEY,
  order_id integer NOT NULL REFERENCES orders (order_id),
  product_id integer NOT NULL REFERENCES products (product_id),
  quantity integer NOT NULL CHECK (quantity > 0),
  unit_price numeric(10,2) NOT NULL CHECK (unit_price >= 0),  -- price when ordered, before any coupon
  UNIQUE (order_id, product_id)
);

-- every attempt to pay an order
CREATE TABLE payments (
  payment_id integer PRIMARY KEY,
  order_id integer NOT NULL REFERENCES orders (order_id),
  pay_method text NOT NULL CHECK (pay_method IN ('card', 'invoice', 'paypal', 'transfer')),
  amount numeric(10,2) NOT NULL CHECK (amount >= 0),
  tried_on date NOT NULL,
  paid_at timestamp                -- NULL = the attempt failed
);

-- parcels of an order; an order may have several or none
CREATE TABLE shipments (
  shipment_id integer PRIMARY KEY,
  order_id integer NOT NULL REFERENCES orders (order_id),
  carrier text NOT NULL CHECK (carrier IN ('Atlas', 'Nordpost', 'Pelican', 'Swift')),
  warehouse text NOT NULL CHECK (warehouse IN ('Bremen', 'Lyon', 'Vienna')),
  fee numeric(10,2) NOT NULL CHECK (fee >= 0),  -- what the carrier charges the store
  shipped_on date,                              -- NULL = not shipped yet
  delivered_on date CHECK (delivered_on >= shipped_on)  -- NULL = not delivered yet, or lost
);

CREATE TABLE reviews (
  review_id integer PRIMARY KEY,
  product_id integer NOT NULL REFERENCES products (product_id),
  customer_id integer NOT NULL REFERENCES customers (customer_id),
  rating integer NOT NULL CHECK (rating BETWEEN 1 AND 5),
  headline text,                   -- NULL = a rating without words
  helpful integer NOT NULL CHECK (helpful >= 0),  -- votes by other customers
  reviewed_on date NOT NULL,
  UNIQUE (product_id, customer_id)
);

-- units sent back
CREATE TABLE refunds (
  refund_id integer PRIMARY KEY,
  item_id integer NOT NULL UNIQUE REFERENCES items (item_id),
  reason text NOT NULL CHECK (reason IN ('broken', 'late', 'regret', 'size', 'wrong')),
  units integer NOT NULL CHECK (units > 0),
  refunded numeric(10,2) CHECK (refunded >= 0),  -- money given back; 0 = turned down; NULL = not decided yet
  requested_on date NOT NULL
);
