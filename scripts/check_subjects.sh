#!/bin/sh
# Check that the subjects of new commits have at most 72 characters: git and its viewers cut off longer ones.
set -eu
cd "$(dirname "$0")/.."

base=615e9179b7f8 # commits up to this one are older than the rule
git rev-parse --quiet --verify "$base^{commit}" >/dev/null || {
  echo "check_subjects: the history is not here, so no subject is checked"
  exit 0
}
long=$(git log --format='%h %s' "$base..HEAD" | awk '{ hash = $1; sub(/^[^ ]+ /, ""); if (length($0) > 72) print hash ": " $0 }')
if [ -n "$long" ]; then
  echo "These commit subjects are longer than 72 characters; move the reason into the body:" >&2
  echo "$long" >&2
  exit 1
fi
