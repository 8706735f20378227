import { MARK_VARIABLE } from './run-mark.ts'

/** How long the groups of a daemon that died have between SIGTERM and SIGKILL, in seconds. */
const GUARDIAN_GRACE_SECONDS = 1
/** Processes whose environment it reads with one command, which takes 128 KiB of names at least (execve(2)). */
const GUARDIAN_PORTION = 256
/** How long one such command may take, in seconds: a process whose memory the kernel holds does not come. */
const GUARDIAN_READ_SECONDS = 2

/** What it calls, of the system. */
export const GUARDIAN_TOOLS = ['cat', 'grep', 'rmdir', 'sleep', 'timeout', 'tr'] as const

/**
 * Reads `+ GROUP`, `- GROUP`, `= CELLS` (a control group that holds those of runs) and `? MARKS` (what the marks of runs begin with) until our end of
 * the pipe is closed, by us or by our death; then ends what is left, and takes the empty groups away. Of the members of a
 * control group, which the kernel lists by thread, each process is asked once; one that our PID namespace does not show
 * is listed as 0, which in a kill would be ourselves. A constant text: nothing that
 * anyone asks for becomes part of it, and what it reads is neither split nor expanded as a path. Environments are read in
 * portions, because one command takes only so many names (execve(2)), and in time. Its argument is where processes are shown.
 */
export const GUARDIAN_SCRIPT = `
trap '' HUP INT QUIT TERM
set -f
groups=
cells=
marks=
stuck=
proc=$1
while read -r change group; do
  case $change in
    =) cells="$cells $group" ;;
    '?') marks="$marks $group" ;;
    +) groups="$groups $group" ;;
    -) left=
       for other in $groups; do [ "$other" = "$group" ] || left="$left $other"; done
       groups=$left ;;
  esac
done
within() { timeout -s KILL ${GUARDIAN_READ_SECONDS} "$@"; }
if ! command -v timeout >/dev/null; then within() { "$@"; }; fi
leads() {
  value=
  while read -r key value; do [ "$key" = Tgid: ] && break; done <"/proc/$1/status"
  [ "$value" = "$1" ]
}
sweep() {
  swept=0
  for cell in $cells; do
    [ -d "$cell" ] || continue
    set +f
    for leaf in "$cell"/*/; do [ -d "$leaf" ] && rmdir "$leaf"; done
    set -f
    rmdir "$cell" || swept=1
  done 2>/dev/null
  return $swept
}
strike() {
  mark=$1 signals=$2
  shift 2
  [ $# -gt 0 ] || return
  found=$(within grep -l "${MARK_VARIABLE}=$mark-" "$@" 2>/dev/null)
  if [ $? -gt 123 ]; then
    # The memory of one process cannot be read: the others are read one by one, and that one not again.
    if [ $# -eq 1 ]; then stuck="$stuck $1 "; else for one; do strike "$mark" "$signals" "$one"; done; fi
    return
  fi
  for environ in $found; do
    # The variable itself: a stranger's may have such a text for its value.
    within cat "$environ" | tr '\\n\\0' '_\\n' | grep -q "^${MARK_VARIABLE}=$mark-" || continue
    member=\${environ#"$proc"/}
    for signal in $signals; do kill "$signal" "\${member%/environ}"; done
  done
}
marked() {
  for mark in $marks; do
    set +f
    set -- "$1" "$proc"/[0-9]*
    set -f
    signals=$1
    shift
    portion=
    count=0
    for process; do
      case $stuck in *" $process/environ "*) continue ;; esac
      portion="$portion $process/environ"
      count=$((count + 1))
      [ $count -lt ${GUARDIAN_PORTION} ] && continue
      strike "$mark" "$signals" $portion
      portion=
      count=0
    done
    strike "$mark" "$signals" $portion
    set -- "$signals"
  done 2>/dev/null
}
found=
for cell in $cells; do
  set +f
  for members in "$cell"/*/cgroup.threads; do
    [ -e "$members" ] || continue
    while read -r member; do leads "$member" && kill -TERM "$member" && kill -CONT "$member" && found=1; done <"$members"
  done
  set -f
done 2>/dev/null
if [ -z "$groups$found" ]; then sweep; exit 0; fi
for group in $groups; do kill -TERM "-$group" && kill -CONT "-$group"; done 2>/dev/null
marked '-TERM -CONT'
sleep ${GUARDIAN_GRACE_SECONDS}
for group in $groups; do kill -KILL "-$group" 2>/dev/null; done
for round in 1 2 3; do marked -STOP; done
for round in 1 2 3; do marked -KILL; done
for cell in $cells; do
  [ -e "$cell/cgroup.kill" ] && echo 1 >"$cell/cgroup.kill" && continue
  [ -e "$cell/cgroup.freeze" ] && echo 1 >"$cell/cgroup.freeze"
  set +f
  for round in 1 2 3 4; do
    for members in "$cell"/*/cgroup.threads "$cell"/*/cgroup.procs; do
      [ -e "$members" ] || continue
      while read -r member; do [ "$member" = 0 ] || kill -KILL "$member"; done <"$members"
    done
  done
  set -f
  [ -e "$cell/cgroup.freeze" ] && echo 0 >"$cell/cgroup.freeze"
done 2>/dev/null
sweep || { sleep ${GUARDIAN_GRACE_SECONDS}; sweep; }
`
