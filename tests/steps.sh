# Sourced by the scripts that run many commands and add up what their tests report: tests/run, and `test` of some bindings.
#
#   step NAME COMMAND [ARGUMENT]...   runs a command, and shows its output when it fails
#   side_by_side FUNCTION...          runs functions that call `step`, two at a time, and starts them in this order; with the
#                                     variable AT_A_TIME, as many as it says
#   report_result                     prints the sums in cargo's form; its status is 0 when nothing failed
#
# A step counts the test cases that its output reports, one for each line of these forms:
#
#   test result: ok. 12 passed; 0 failed;       the numbers of cases that passed and failed; a line each for the parts of a step
#   rust memory: 38 of 38 cases agree           the same, from a runner of conformance cases
#   skipped: NAME: REASON                       a case that examined nothing and is in no sum
#   test NAME ... skipped, REASON               the same where cargo has counted the case as passed
#   test NAME ... ignored, REASON               a case that cargo was not told to run
#
# A step that takes longer than STEP_LIMIT seconds (20 minutes) has failed: its processes are listed and ended, so that the
# other steps still run and the log says which one hangs. The steps that it runs itself have half of its time.
#
# A command that reports nothing is one case. A test of cargo that is ignored because it is the entry point of a child
# process says "not a test" as its reason, and is left out.

passed=0
failed=0
# The lines `NAME: REASON` of what was skipped.
skipped=()
# The lines `STEP: CASE` of what failed.
failures=()
step_log=$(mktemp)
step_times=$(mktemp)
trap 'rm -f "$step_log" "$step_times"' EXIT

# Prints the numbers of cases that the step's output says passed and failed.
count_cases() {
  awk '
    /^test result:/ { passed += $4; failed += $6 }
    / cases agree$/ { passed += $(NF - 4); failed += $(NF - 2) - $(NF - 4) }
    /test .* \.\.\. skipped, / { passed -= 1 }
    END { print passed + 0, failed + 0 }' "$step_log"
}

# Prints `NAME: REASON` for each case that the step's output says was skipped.
list_skips() {
  sed -nE -e 's/^skipped: (.+: .+)$/\1/p' -e 's/^.*test (.+) \.\.\. skipped, (.+)$/\1: \2/p' \
    -e '/ \.\.\. ignored, not a test/d' -e 's/^test (.+) \.\.\. ignored, (.+)$/\1: \2/p' \
    -e 's/^test (.+) \.\.\. ignored$/\1: it is marked as ignored/p' "$step_log"
}

# Prints the names of cases that the step's output says failed, as cargo, pytest, Go, Node, minitest, Maven and the project's scripts say
# it, at any depth of indentation.
list_failures() {
  sed -nE -e 's/^ *test (.+) \.\.\. FAILED$/\1/p' -e 's/^ *(FAILED|ERROR) (.+\.py::.+)$/\2/p' -e 's/^ *--- FAIL: ([^ ]+).*$/\1/p' \
    -e 's/^ *(not ok [0-9]+ - .+)$/\1/p' -e 's/^ *✖ (.+) \([0-9.]+ms\)$/\1/p' -e 's/^ *([A-Z][A-Za-z:]*#test_[^ ]+( \[.+\])?):$/\1/p' \
    -e 's/^ *\[ERROR\] +([A-Za-z.]+\.[A-Za-z_`]+.*:[0-9]+.*)$/\1/p' -e 's/^ *(FAILED: .+)$/\1/p' "$step_log" |
    awk '!seen[$0]++' | head -n 20
}

# Prints the descendants of a process, without the process OTHER and those of it, in lines `PID PPID STATE SECONDS COMMAND`:
# descendants_of PID OTHER
descendants_of() {
  ps -e -o pid=,ppid=,stat=,etimes=,args= | awk -v root="$1" -v other="$2" '
    { line[$1] = $0; children[$2] = children[$2] " " $1 }
    function print_children(of, ids, n, i) {
      n = split(children[of], ids, " ")
      for (i = 1; i <= n; i++) { if (ids[i] != other) { print line[ids[i]]; print_children(ids[i]) } }
    }
    END { print_children(root) }'
}

# Ends the processes of a step that takes too long: end_after SECONDS LOG SHELL, where the process SHELL runs the step. QUIT
# comes first: the JVM answers it with the stacks of its threads, and Go with those of its goroutines.
end_after() {
  local limit=$1 log=$2 shell=$3 self=$BASHPID stuck
  # The step has ended: nothing of this may outlive it.
  trap 'kill "$!"; exit' TERM
  sleep "$limit" &
  wait "$!"
  trap '' TERM
  stuck=$(descendants_of "$shell" "$self")
  printf 'FAILED: this took longer than %s s and was ended. Its processes were:\n%s\n' "$limit" "$stuck" >>"$log"
  awk '{ print $1 }' <<<"$stuck" | xargs --no-run-if-empty kill -QUIT
  sleep 5
  # By then some have started others, and some have lost their parents.
  { printf '%s\n' "$stuck"; descendants_of "$shell" "$self"; } | awk 'NF { print $1 }' | xargs --no-run-if-empty kill -KILL
}

step() {
  local name=$1 status ok bad skips=() named limit=${STEP_LIMIT:-1200} shell=$BASHPID watchdog TIMEFORMAT='%0R s, %0U s and %0S s of processor time'
  shift
  printf '== %s\n' "$name"
  # The output of steps that run side by side comes at their end; what starts is printed at once.
  [ -z "${progress:-}" ] || printf '   ... %s\n' "$name" >&"$progress"
  end_after "$limit" "$step_log" "$shell" </dev/null >/dev/null 2>&1 &
  watchdog=$!
  : >"$step_log"
  { time STEP_LIMIT=$((limit / 2)) "$@" >>"$step_log" 2>&1; } 2>"$step_times"
  status=$?
  kill "$watchdog"
  wait "$watchdog"
  ! grep -q '^FAILED: this took longer than ' "$step_log" || status=1
  # Maven ends its output with colour codes and no end of line, which would hide the line after it.
  sed -i 's/\x1b\[[0-9;]*m//g' "$step_log"
  read -r ok bad < <(count_cases)
  mapfile -t skips < <(list_skips)
  # A command that fails without saying which case did has itself failed. One that reports no case is a case.
  if [ $status -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  if [ $status -eq 0 ] && [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ] && [ ${#skips[@]} -eq 0 ]; then ok=1; fi
  passed=$((passed + ok))
  failed=$((failed + bad))
  skipped+=("${skips[@]}")
  if [ "$bad" -ne 0 ]; then
    mapfile -t named < <(list_failures)
    [ ${#named[@]} -gt 0 ] || named=("$*")
    failures+=("${named[@]/#/"$name: "}")
    # Indented, so that a script that runs this one does not count the step's lines in addition to its sum.
    sed 's/^/  /' "$step_log"
    printf '  FAILED: %s\n' "$*"
  fi
  printf '   %s passed, %s failed%s, %s\n' "$ok" "$bad" "${skips:+, ${#skips[@]} skipped}" "$(tail -n 1 "$step_times")"
}

# Runs functions that call `step` side by side, one process for each, and adds up what they report: side_by_side FUNCTION...
# Put the longest first: then both cores are busy until nearly the end.
side_by_side() {
  local folder lane started=0 sums named progress
  folder=$(mktemp -d)
  exec {progress}>&1
  for lane in "$@"; do
    [ $started -lt "${AT_A_TIME:-2}" ] || wait -n
    started=$((started + 1))
    (
      passed=0 failed=0 skipped=() failures=() step_log=$folder/$lane.log step_times=$folder/$lane.times
      "$lane"
      printf '%s\n' "$passed" "$failed" "${skipped[@]}" >"$folder/$lane.sums"
      [ ${#failures[@]} -eq 0 ] || printf '%s\n' "${failures[@]}" >"$folder/$lane.failures"
    ) >"$folder/$lane.output" 2>&1 &
  done
  wait
  exec {progress}>&-
  for lane in "$@"; do
    cat "$folder/$lane.output"
    mapfile -t sums <"$folder/$lane.sums"
    # A lane that was killed has written none.
    passed=$((passed + ${sums[0]:-0}))
    failed=$((failed + ${sums[1]:-1}))
    skipped+=("${sums[@]:2}")
    [ ! -e "$folder/$lane.failures" ] || { mapfile -t named <"$folder/$lane.failures" && failures+=("${named[@]}"); }
  done
  rm -rf "$folder"
}

report_result() {
  local verdict=ok
  [ $failed -eq 0 ] || verdict=FAILED
  [ ${#skipped[@]} -eq 0 ] || printf 'skipped: %s\n' "${skipped[@]}"
  printf 'test result: %s. %s passed; %s failed;\n' $verdict $passed $failed
  [ $failed -eq 0 ]
}
