-- The layouts that both ways read and write. A unit test compares them with the library's.
-- luacheck: push ignore 211
local HEADER = '<dI2I2I2I2I2I2'                 -- of a batch
local PLAN, PLAN_BYTES = '<BBI2I2', 6           -- then its groups or penalties, its charges, its names
local FIRST_GROUP, GROUP_BYTES, TOLD_BYTES = '<BBI2I2BBB', 3, 3
local TERMS, TERMS_BYTES = 'I4dI4dI4', 28
local CHARGE_BYTES = 55
-- A value: B format, B counters, I2 bytes at its end; for each counter I4 tag, d window, I4 limit, I4 burst, which
-- seldom change, and d b for each; d the end of the time to live; for each counter d a, I4 c.
-- What a, b and c are is with the algorithms. Limit and burst are those of the last charge. At the end are the
-- names of the quotas within their rule, for each counter B length and the name; nothing if no quota has one.
local HEAD_BYTES, FIXED_BYTES, TTL_BYTES, B_BYTES, MOVING_BYTES = 4, 20, 8, 8, 12
local MOVING_PART, NUMBER_PART = '<dI4', '<d'
local SLACK_MIN, SLACK_MAX = 1000000, 60000000  -- what a key lives beyond its state, in microseconds
local TEST_TTL = 60000                          -- milliseconds a key lives at least if `now` is given
local EXACT = 9007199254740992                  -- below it, numbers hold every integer
local LIMIT_MAX, WINDOW_MAX = 1000000000, 31622400000000
-- luacheck: pop
