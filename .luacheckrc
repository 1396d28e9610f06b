-- For `make lint`, which checks the script as the server gets it: scripts/lint_lua.py.
std = "lua51"
read_globals = { "redis", "struct", "KEYS", "ARGV" }
max_line_length = 120
-- `not (x <= y)` is true of NaN, which a stored number can be; `x > y` is not.
ignore = { "581" }
