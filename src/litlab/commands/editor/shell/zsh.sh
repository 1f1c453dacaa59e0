
_PACKAGE_complete() {  # the words of which begin with the command at a given place
  local at=$1 typed=$PREFIX flag=${words[CURRENT-1]} verb=
  local -a found parts
  case $typed in
    --*=*)
      flag=${typed%%=*} typed=${typed#*=}
      compset -P '*='
      ;;
  esac
  case $flag in --*) ;; *) flag= ;; esac
  (( CURRENT > at )) && verb=${words[at]}
  found=(${(f)"$(_PACKAGE_candidates "$verb" "$flag" "$typed")"})
  parts=(${(M)found:#*.})
  found=(${found:#*.})
  (( $#parts )) && compadd -S '' -- $parts
  (( $#found )) && compadd -- $found
  (( $#parts + $#found )) || _files
}

_PACKAGE_of_function() {
  _PACKAGE_complete 2
}

_PACKAGE_of_python() {
  if (( CURRENT > 3 )) && [[ "$words[2] $words[3]" == "-m PACKAGE" ]]; then
    _PACKAGE_complete 4
  elif [[ -n $_PACKAGE_before ]]; then
    $_PACKAGE_before "$@"
  else
    _files
  fi
}

_PACKAGE_install() {
  if ! whence compdef >/dev/null; then
    autoload -Uz compinit && compinit
  fi
  if [[ ${_comps[python]-} != _PACKAGE_of_python ]]; then
    typeset -g _PACKAGE_before=${_comps[python]-}
  fi
  compdef _PACKAGE_of_python python python3
  if ! whence PACKAGE >/dev/null; then
    PACKAGE() { python -m PACKAGE "$@" }
  fi
  compdef _PACKAGE_of_function PACKAGE
}

_PACKAGE_install
