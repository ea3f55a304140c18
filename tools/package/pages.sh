#!/bin/sh
# Types pages line by line, as their reader does: tools/package/pages.sh DIRECTORY PAGE…
#
# Needs a shell, coreutils, sed and the program on the path, so that it can be run in a bare chroot. DIRECTORY has `examples` in it.
#
#   ```sh              typed, line by line; a line that ends with `&` goes on beside the others, and must say that it is ready
#   ```toml [NAME]     written to NAME (`gateway.toml`)
#   all others         not typed: what builds the program, needs root, or is to be read only
#
# Where something runs, a line is tried again until it succeeds, since a script types faster than a reader, and so is a
# `flow migrate` until flows move and a `status` until packets have come. A block whose last line is a `flowkeep stop` ends all
# that was started, and well. `crates/flowkeep/tests/readme.rs` types the same pages in a checkout.
set -eu
cd "$1"
shift
# Only the reader's own directory may have a control socket.
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR
trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT
patience=1200 # tenths of a second
started=0
running=
typed=0

fail() {
    printf '%s\n' "pages.sh: $page: $*" >&2
    for pid in $running; do kill "$pid" 2>/dev/null || true; done
    exit 1
}

# Starts a line that goes on, and waits until it says that it is ready.
start() {
    started=$((started + 1))
    said=said-$started
    sh -c "exec $1" </dev/null >"$said.out" 2>"$said" &
    pid=$!
    running="$running $pid"
    tries=0
    until grep -q -e '^ready: ' -e '^listening at ' "$said"; do
        tries=$((tries + 1))
        if [ $tries -gt $patience ] || ! kill -0 "$pid" 2>/dev/null; then
            fail "$1 is not ready: $(cat "$said")"
        fi
        sleep 0.1
    done
}

# Whether what a line has said is what its page promises: flows that move, packets that have come.
keeps_word() { # COMMAND
    case $1 in
        *"flow migrate"* | *--rebalance*) grep -q ', moved [1-9]' typed.out ;;
        "flowkeep status") grep -q '^in  *[1-9]' typed.out ;;
    esac
}

# Types a line, and waits for its end.
type_line() {
    command=$(printf '%s\n' "$1" | sed 's/  #.*//; s/ *$//')
    [ -n "$command" ] || return 0
    printf '$ %s\n' "$command"
    typed=$((typed + 1))
    case $command in
        export\ *) eval "$command" ;;
        *\&) start "${command%&}" ;;
        *)
            tries=0
            until sh -c "$command" </dev/null >typed.out 2>&1 && keeps_word "$command"; do
                tries=$((tries + 1))
                # A second `runtime add` would do something else.
                case $command in *--rebalance*) ! grep -q ', moved 0,' typed.out || tries=$((patience + 1)) ;; esac
                if [ -z "$running" ] || [ $tries -gt $patience ]; then
                    fail "$command: $(cat typed.out)"
                fi
                sleep 0.1
            done
            head -n 8 typed.out
            ;;
    esac
}

# All that was started ends by itself.
end() {
    for pid in $running; do
        tries=0
        while kill -0 "$pid" 2>/dev/null; do
            tries=$((tries + 1))
            [ $tries -le $patience ] || fail "it does not stop what it starts"
            sleep 0.1
        done
        wait "$pid" || fail "what it started has failed: $(cat said-*)"
    done
    running=
}

for page in "$@"; do
    kind=
    inside=no
    last=
    typed=0
    while IFS= read -r line; do
        case $inside$line in
            no\`\`\`*)
                inside=yes
                kind=${line#\`\`\`}
                case $kind in
                    toml) file=gateway.toml ;;
                    toml\ *) file=${kind#toml } ;;
                    *) file= ;;
                esac
                [ -z "$file" ] || : >"$file"
                ;;
            yes\`\`\`*)
                inside=no
                case $kind$last in sh"flowkeep stop"*) end ;; esac
                ;;
            yes*)
                case $kind in
                    toml*) printf '%s\n' "$line" >>"$file" ;;
                    sh)
                        type_line "$line"
                        last=$line
                        ;;
                esac
                ;;
        esac
    done <"$page"
    [ -z "$running" ] || fail "it does not stop what it starts"
    [ "$typed" -ge 10 ] || fail "only $typed lines were typed"
    printf '%s\n' "typed as it stands: $page, $typed lines"
done
