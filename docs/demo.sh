#!/usr/bin/env bash
# The whole flow, from spec to rollback, on a real model and this CPU: two engines of the same model
# (INT8 and INT4) are built, judged, promoted, and prod is taken back. Every command is printed
# before it runs, exactly as you would type it. Everything is kept in .demo/: a second run starts with
# an empty registry and reuses every step of the builds.
set -euo pipefail
cd "$(dirname "$0")/.."

export ENGINECTL_REGISTRY="file://$PWD/.demo/engines"
export ENGINECTL_CACHE="$PWD/.demo/cache"
export PYTHONUNBUFFERED=1
rm -rf .demo/engines

specs=build_specs/smollm2-135m-instruct
int8=$specs/cpu-x86-64-v3-int8.yaml
int4=$specs/cpu-x86-64-v3-int4.yaml
product=smollm2-135m-instruct/cpu-x86-64-v3

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() {
  local shown='' word
  for word in "$@"; do
    case $word in
      *[!A-Za-z0-9_./:=,@+-]*) shown+=" \"$word\"" ;;
      *) shown+=" $word" ;;
    esac
  done
  printf '\n$%s\n' "$shown"
  "$@"
}
# One field of a JSON answer, for use in the next command.
field() { python3 -c 'import json,sys; d=json.load(sys.stdin)
print(d[sys.argv[1]])' "$1"; }

say "1. Lock: pin every reference of both specs (the locks are committed; this checks them)"
run enginectl lock --check "$int8"
run enginectl lock --check "$int4"

say "2. Plan: what a build would do, step by step"
run enginectl plan "$int8"

say "3. Build: INT8 and INT4 share the fetched and converted model"
run enginectl build "$int8"
run enginectl build "$int4"
engine8=$(enginectl build "$int8" --output json 2>/dev/null | field engine)
engine4=$(enginectl build "$int4" --output json 2>/dev/null | field engine)

say "4. Gate: a real server, golden prompts, TTFT, TPOT and tokens/s"
run enginectl gate "${engine8:0:19}"
run enginectl gate "${engine4:0:19}"

say "5. Release and promote INT8, then INT4"
run enginectl release "${engine8:0:19}"
release8=$(enginectl release "${engine8:0:19}" --output json 2>/dev/null | field name)
run enginectl promote "$release8" --to staging
run enginectl promote "$release8" --to prod
run enginectl release "${engine4:0:19}"
release4=$(enginectl release "${engine4:0:19}" --output json 2>/dev/null | field name)
run enginectl promote "$release4" --to staging
run enginectl promote "$release4" --to prod

say "6. Look: what is live, and what changed"
run enginectl status
run enginectl diff "$release8" "$release4"
run enginectl history $product/prod

say "7. Roll back: prod returns to the INT8 engine; nothing is rebuilt"
run enginectl rollback $product/prod --to "${engine8:0:19}" --reason "demo: INT4 answers too loosely"
run enginectl status

for name in int8 int4; do
  engine=engine${name#int}
  enginectl show "${!engine}" --report >".demo/report-$name.md"
done
say "Done."
cat <<END
Read next: the gate reports .demo/report-int8.md and .demo/report-int4.md

Try next, in this shell:
  export ENGINECTL_REGISTRY=$ENGINECTL_REGISTRY ENGINECTL_CACHE=$ENGINECTL_CACHE
  export PATH=$PWD/.venv/bin:\$PATH
  enginectl whatwas $product/prod --at -1m
  enginectl promote $release4 --to prod        # refused: the rollback set a hold
  enginectl explain $int8 $int4
  enginectl verify
  enginectl doctor
END
