#!/bin/sh
# Starts the server with a token of operators, a data directory and the demo load of the dashboard. The first time a token is made and shown; after that only its hash is there.
# Usage: run.sh COMMAND...: what runs `ratekeeper`, such as `cargo run --`.
set -eu

folder=target/run
tokens=$folder/tokens
if [ ! -s "$tokens" ]; then
    mkdir -p "$folder"
    made=$("$@" token new --name operator --role operate)
    # Whoever reads the file cannot use it; nobody else has to change it.
    (umask 077 && printf '%s\n' "$made" | sed -n 's/^line *//p' > "$tokens")
    printf '%s\n' "$made" | sed -n 's/^token */token of operators (shown once; to have a new one, delete target\/run\/tokens): /p'
fi
exec "$@" serve --tokens "$tokens" --data "$folder/data" --demo-load
