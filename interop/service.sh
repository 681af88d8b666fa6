#!/usr/bin/env bash
# Asks a gateway of the lock service everything that its OpenAPI document allows, and much that it does not
# (schemathesis): no answer may be a 5xx or one that is not described. Called by scripts/interop service.
set -euo pipefail
cd "$(dirname "$0")/.."
home=$PWD/target/interop version=4.32.5
tool=$home/schemathesis/bin/schemathesis
if ! "$tool" --version 2>/dev/null | grep -q "$version"; then
    python3 -m venv "$home/schemathesis"
    "$home/schemathesis/bin/pip" -q install "schemathesis==$version"
fi
cargo build --quiet -p distlock-cli
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"${CARGO_TARGET_DIR:-target}/debug/distlock" serve --quiet --url memory: --listen "127.0.0.1:$port" --max-rate 1000000 &
gateway=$!
trap 'kill $gateway' EXIT
for _ in $(seq 100); do
    curl -sf "localhost:$port/readyz" >/dev/null && break
    sleep 0.1
done
# Whether a value that fits its schema is a lease that is held, or a time, no schema can say. Streams do not end.
cd "$home" # where the tool keeps what it remembers
"$tool" run "http://127.0.0.1:$port/v1/openapi.json" --exclude-path-regex '(watch|events)$' \
    --exclude-checks positive_data_acceptance --max-examples "${EXAMPLES:-300}" --request-timeout 70
curl -sf "localhost:$port/readyz" >/dev/null
