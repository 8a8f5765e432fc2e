#!/bin/sh
# Makes .venv: a Python that will do, VTC in editable form and its development tools, or with `demo` only what the
# demonstration needs. Does nothing while .venv works, has that and was made from this pyproject.toml in this place.
set -eu
cd "$(dirname "$0")/.."

extra=${1:-dev}
made_from="$PWD $(cat pyproject.toml scripts/bootstrap.sh | cksum)"
stamp=.venv/made-from
if .venv/bin/python -c '' 2>/dev/null; then
  made=$(cat $stamp 2>/dev/null || :)
  [ "$made" = "dev $made_from" ] || [ "$made" = "$extra $made_from" ] && exit 0
fi

say() { echo "bootstrap: $*" >&2; }

# By running it: a pyenv shim is there for every version and refuses those that are not selected, and
# Debian's python3 may come without ensurepip.
can_make_venv() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, int(sys.argv[1])) <= sys.version_info < (3, int(sys.argv[2])))' "$2" "$3" >/dev/null 2>&1
}

find_python() { # with a minor version from $1 on and below $2
  for python in python3.12 python3.13 python3 python \
    "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/*/bin/python3; do
    if can_make_venv "$python" "$1" "$2"; then
      echo "$python"
      return
    fi
  done
  return 1
}

# The demonstration runs once: to compile all that is installed would take longer than it does.
if [ "$extra" = demo ]; then compile=--no-compile; else compile=--compile; fi

pip_install() {
  .venv/bin/python -m pip install "$compile" --quiet --no-input --disable-pip-version-check --editable ".[$extra]"
}

with_pip() {
  "$1" -m venv .venv && pip_install
}

# uv reads .python-version and fetches that Python if need be.
with_uv() {
  "$1" venv --quiet .venv || return 1
  "$1" pip install --quiet --python .venv/bin/python --editable ".[$extra]" && return
  say "uv could not install the packages (it does not read pip's configuration); trying pip"
  .venv/bin/python -m ensurepip >/dev/null && pip_install
}

fetch_uv() {
  if ! python=$(find_python 8 99); then
    say "no Python 3.12 or 3.13, and no other Python 3 with venv to fetch one with"
    return 1
  fi
  say "no Python 3.12 or 3.13: fetching uv into .uv with $python, to let it provide one"
  rm -rf .uv
  "$python" -m venv .uv &&
    .uv/bin/python -m pip install --quiet --no-input --disable-pip-version-check uv
}

make_venv() {
  if command -v uv >/dev/null; then
    say "making .venv with uv"
    with_uv uv && return
    say "that failed; trying without uv"
    rm -rf .venv
  fi
  if python=$(find_python 12 14); then
    say "making .venv with $python"
    with_pip "$python"
  else
    fetch_uv && with_uv .uv/bin/uv
  fi
}

rm -rf .venv # before looking for a Python: an activated .venv would be found first
say "installing into .venv; this takes a while"
if ! make_venv; then
  rm -rf .venv
  say "could not make .venv; the reason is above."
  say "VTC needs Python 3.12 or 3.13 with venv, and a package index that pip or uv can reach."
  say "Install such a Python (your system's packages, pyenv, or uv), then run make again."
  exit 1
fi
echo "$extra $made_from" >$stamp
