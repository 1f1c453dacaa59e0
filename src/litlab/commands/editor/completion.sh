# Completion of `python -m PACKAGE` for bash and zsh, printed by: python -m PACKAGE completion. TAB starts no Python.

_PACKAGE_words() {  # command, flag, beginning of the word: what may stand there
  awk -v verb="$1" -v flag="$2" -v begin="$3" '
    $1 == "commands" && verb == "" { for (i = 2; i <= NF; i++) offer($i) }
    $1 == verb || ($1 == "-" && verb ~ /^(fit|validate|test|predict|bench|export|serve|shards)$/) {
      if (begin ~ /^-/) offer($2)
      else if ($2 == flag) for (i = 3; i <= NF; i++) offer($i)
    }
    function offer(word,   dot) {
      if (index(word, begin) != 1) return
      dot = index(substr(word, length(begin) + 1), ".")  # flags are shown up to their next dot
      if (begin ~ /^-/ && dot) word = substr(word, 1, length(begin) + dot)
      if (!seen[word]++) print word
    }' <<'END'
@TABLE@
END
}

_PACKAGE_runs() {  # as commands name them: run, experiment, last, best
  printf '%s\n' last best
  find -L lightning_logs -maxdepth 3 -name 'version_*' 2>/dev/null |
    sed -e 's|^lightning_logs/||' -e p -e 's|/version_[0-9]*$||' | sort -u
}

_PACKAGE_complete() {
  local word=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} at=1 verb= prefix= line
  if [ "${COMP_WORDS[0]}" != PACKAGE ]; then  # python
    [ "${COMP_WORDS[1]} ${COMP_WORDS[2]}" = "-m PACKAGE" ] || return 0
    at=3
  fi
  case $word/$flag in  # --flag=value is three words in bash, one in zsh
    =/*) word= ;;
    */=) flag=${COMP_WORDS[COMP_CWORD-2]} ;;
    --*=*) flag=${word%%=*} prefix=${word%%=*}= word=${word#*=} ;;
  esac
  [ "$COMP_CWORD" -gt "$at" ] && verb=${COMP_WORDS[at]}
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("$prefix$line")
  done <<EOF
$(case $verb/$flag/$word in
  */*/-*) _PACKAGE_words "$verb" "$flag" "$word" ;;
  */--run/* | */--resume/* | */--init_from/* | runs/runs/* | compare/*/* | report/report/* | reproduce/reproduce/*)
    _PACKAGE_runs | awk -v begin="$word" 'index($0, begin) == 1' ;;
  *) _PACKAGE_words "$verb" "$flag" "$word" ;;
  esac)
EOF
  [ "${COMPREPLY[0]}" != "$prefix" ] || COMPREPLY=()  # nothing: names of files
  if [ "${#COMPREPLY[@]}" = 1 ] && [[ ${COMPREPLY[0]} == *. ]]; then
    compopt -o nospace 2>/dev/null
  fi
  return 0
}

if [ -n "$ZSH_VERSION" ]; then
  autoload -Uz compinit bashcompinit && compinit && bashcompinit
fi
type PACKAGE >/dev/null 2>&1 || PACKAGE() { python -m PACKAGE "$@"; }
complete -o default -F _PACKAGE_complete PACKAGE python python3
