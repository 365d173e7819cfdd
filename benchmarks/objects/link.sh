#!/bin/bash
# Puts and gets across two network namespaces, beside a plain stream on the same link. Needs root and a release build
# (cargo build --release -p terrace-client --example link). Usage: benchmarks/objects/link.sh [DIRECTORY FOR THE ROOT]
# RATE=10gbit limits the link (tc), as a network card would.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}/release
if [ "$(id -u)" != 0 ]; then
    echo '{"skipped": "network namespaces need root"}'
    exit 0
fi
root=$(mktemp -d "${1:-/var/tmp}/terrace-link-XXXXXX")
tier=$(mktemp -d /dev/shm/terrace-link-XXXXXX)
node=terrace-link-$$
near=tl$$
other=
cleanup() {
    for process in $other; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    ip link del "$near" 2>/dev/null || true
    ip netns del "$node" 2>/dev/null || true
    rm -rf "$root" "$tier"
}
trap cleanup EXIT
ip netns add "$node"
ip link add "$near" type veth peer name far netns "$node"
ip addr add 10.177.5.1/30 dev "$near"
ip link set "$near" up
ip -n "$node" addr add 10.177.5.2/30 dev far
ip -n "$node" link set far up
ip -n "$node" link set lo up
if [ -n "${RATE:-}" ]; then
    tc qdisc add dev "$near" root tbf rate "$RATE" burst 4m latency 50ms
    ip netns exec "$node" tc qdisc add dev far root tbf rate "$RATE" burst 4m latency 50ms
fi
ip netns exec "$node" "$target/examples/link" serve 10.177.5.2:7790 &
other=$!
for way in plain tls; do
    flag=$([ $way = plain ] && echo --plain || true)
    mkdir "$root/$way"
    # An agent leaves a moment after `terrace serve`: the next one has a root and an address of its own.
    address=10.177.5.2:$([ $way = plain ] && echo 7788 || echo 7789)
    ip netns exec "$node" "$target/terrace" serve --quiet --root "$root/$way" --tier "ram=$tier:2GiB" \
        --state "$root/state" --runtime "$tier/run" --flush '!**' --listen "$address" --token-file "$tier/token" $flag \
        > "$tier/ready" &
    agent=$!
    other="$other $agent"
    for _ in $(seq 100); do [ -s "$tier/ready" ] && break; sleep 0.1; done
    echo "{\"link\": \"veth ${RATE:-unlimited}\", \"objects_by\": \"$way\"}"
    TERRACE_TOKEN_FILE=$tier/token "$target/examples/link" measure "$way://$address" 10.177.5.2:7790
    kill "$agent"
    wait "$agent" || true
    rm -f "$tier/ready"
done
