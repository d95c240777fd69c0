# Sourced by demo and test: makes .venv with framewin and its extras, if that is not done yet.
# The extras wanted are in EXTRAS; PYTHON names an interpreter to use instead of the first found.

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "framewin needs Python 3.11 or newer; set PYTHON to its path" >&2
    return 1
}

prepare_venv() {
    local stamp=.venv/framewin-installed wanted
    wanted="$EXTRAS $(cat setup.cfg pyproject.toml)"
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return
    fi
    echo "Installing framewin[$EXTRAS] into .venv; this happens once and takes a few minutes" >&2
    [ -x .venv/bin/python ] || "$(find_python)" -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$EXTRAS]"
    echo "$wanted" > "$stamp"
}
