# Writes what gremlins printed, one file for each package, as a page of docs/quality.
FNR == 1 {
  package = FILENAME
  sub(/.*\//, "", package); sub(/\.txt$/, "", package); gsub(/_/, "/", package)
  order[++packages] = package
  over = 0
}
/^Shutting down/ { over = 1 } # what it says after the interrupt is of tests that were interrupted, too
over { next }
/^ *(KILLED|LIVED|TIMED OUT|NOT COVERED|NOT VIABLE|RUNNABLE) [A-Z_]+ at / {
  line = $0; sub(/^ */, "", line)
  match(line, /^(KILLED|LIVED|TIMED OUT|NOT COVERED|NOT VIABLE|RUNNABLE)/)
  status = substr(line, 1, RLENGTH)
  count[package, status]++; total[status]++
  if (status == "LIVED") {
    rest = substr(line, RLENGTH + 2); split(rest, part, " at ")
    survivors[package] = survivors[package] sprintf("- `%s` %s\n", part[2], tolower(part[1]))
  }
}
function percent(killed, lived) { return killed + lived ? int(100 * killed / (killed + lived)) " %" : "" }
function row(name, k, l, n, t) { printf "| %s | %d | %d | %s | %d | %d |\n", name, k, l, percent(k, l), n, t }
END {
  print "| package | killed | lived | killed of covered | not covered | timed out |\n|---|---|---|---|---|---|"
  for (i = 1; i <= packages; i++) {
    p = order[i]
    row("internal/" p, count[p, "KILLED"] + 0, count[p, "LIVED"] + 0, count[p, "NOT COVERED"] + 0, count[p, "TIMED OUT"] + 0)
  }
  row("all", total["KILLED"], total["LIVED"], total["NOT COVERED"], total["TIMED OUT"])
  print "\nMutants that lived, as `file:line:column`:\n"
  for (i = 1; i <= packages; i++) if (survivors[order[i]] != "") print "internal/" order[i] "\n\n" survivors[order[i]]
}
