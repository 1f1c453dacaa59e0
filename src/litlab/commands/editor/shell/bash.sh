
_PACKAGE_complete() {  # the words of which begin with the command at a given place
  local at=$1 typed=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} verb= word
  if [ "$typed" = "=" ]; then  # bash takes --flag=value for three words
    typed=
  elif [ "$flag" = "=" ]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  fi
  case $flag in --*) ;; *) flag= ;; esac
  [ "$COMP_CWORD" -gt "$at" ] && verb=${COMP_WORDS[at]}
  COMPREPLY=()
  while IFS= read -r word; do
    COMPREPLY+=("$word")
  done < <(_PACKAGE_candidates "$verb" "$flag" "$typed")
  if [ "${#COMPREPLY[@]}" = 1 ] && [ "${COMPREPLY[0]: -1}" = . ]; then
    compopt -o nospace 2>/dev/null  # bash 3.2 has none
  fi
  return 0
}

_PACKAGE_of_function() {
  _PACKAGE_complete 1
}

_PACKAGE_of_python() {
  if [ "$COMP_CWORD" -gt 2 ] && [ "${COMP_WORDS[1]} ${COMP_WORDS[2]}" = "-m PACKAGE" ]; then
    _PACKAGE_complete 3
  elif [ -n "$_PACKAGE_before" ]; then
    "$_PACKAGE_before" "$@"
  fi
}

_PACKAGE_install() {
  local loader before
  for loader in _comp_load _completion_loader; do  # of bash-completion, which would load python's only now
    if declare -F "$loader" >/dev/null; then
      "$loader" python >/dev/null 2>&1
    fi
  done
  before=$(complete -p python 2>/dev/null | sed -n 's/.*-F \([^ ]*\) .*/\1/p')
  if [ "$before" != _PACKAGE_of_python ]; then
    _PACKAGE_before=$before
  fi
  complete -o default -F _PACKAGE_of_python python python3
  if ! type PACKAGE >/dev/null 2>&1; then
    PACKAGE() { python -m PACKAGE "$@"; }
  fi
  complete -o default -F _PACKAGE_of_function PACKAGE
}

_PACKAGE_install
