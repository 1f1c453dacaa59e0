# What follows here is the same in bash and zsh. Nothing starts Python.

_PACKAGE_find() {  # the runs' folders and files of a name, at most two folders deep
  find -L lightning_logs -maxdepth "$1" -name "$2" 2>/dev/null
}

_PACKAGE_configs() {  # of a command
  case $1 in
    sweep) find -L configs/sweeps -name '*.yaml' 2>/dev/null ;;
    *) find -L configs -name '*.yaml' ! -path '*/sweeps/*' 2>/dev/null ;;
  esac
}

_PACKAGE_runs() {  # by the names that commands take: run, experiment, last, best
  _PACKAGE_find 3 'version_*' | sed -e 's|^lightning_logs/||' -e p -e 's|/version_[0-9]*$||'
  printf '%s\n' last best
}

_PACKAGE_metrics() {  # of earlier runs, and those that the configs watch
  _PACKAGE_find 4 metrics.json | head -n 100 | tr '\n' '\0' |
    xargs -0 grep -hoE '"(train|val|test)/[^"]+"' 2>/dev/null | tr -d '"'
  grep -rhoE 'monitor: *[a-z]+/[A-Za-z0-9_]+' configs 2>/dev/null | sed 's/.*: *//'
}

_PACKAGE_offered() {  # what may stand after a command and a flag, or no flag
  case "$1 $2" in
    *' --config') _PACKAGE_configs "$1" ;;
    *' --run' | *' --resume' | *' --init_from' | 'results --add') _PACKAGE_runs ;;
    *.monitor | *' --sort') _PACKAGE_metrics ;;
    'runs ' | 'compare ' | 'report ' | 'reproduce ') _PACKAGE_runs ;;
    *) _PACKAGE_values "$1 $2" | tr ' ' '\n' ;;
  esac
}

_PACKAGE_candidates() {  # for the beginning of a word, by the command and the flag before it
  case "$1:$3" in
    :*) _PACKAGE_commands | tr ' ' '\n' ;;
    *:-*) _PACKAGE_flags "$1" | tr ' ' '\n' ;;
    *) _PACKAGE_offered "$1" "$2" ;;
  esac | awk -v typed="$3" '
    index($0, typed) == 1 {
      rest = substr($0, length(typed) + 1)
      dot = typed ~ /^-/ ? index(rest, ".") : 0  # flags are shown up to their next dot
      word = dot ? typed substr(rest, 1, dot) : $0
      if (word != "" && !seen[word]++) print word
    }'
}
