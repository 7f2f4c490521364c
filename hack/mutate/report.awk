# Writes what hack/mutate printed, one file for each package, as the page docs/develop/mutations.md.
FNR == 1 {
  package = FILENAME
  sub(/.*\//, "", package); sub(/\.txt$/, "", package); gsub(/_/, "/", package)
  order[++packages] = package
}
match($0, /^(KILLED|LIVED|TIMED OUT|NOT COVERED|NOT TRIED) /) {
  status = substr($0, 1, RLENGTH - 1)
  if (status == "TIMED OUT") status = "KILLED" # a test that never ends does not pass
  count[package, status]++; total[status]++
  if (status == "LIVED") {
    split(substr($0, RLENGTH + 1), part, " at ")
    survivors[package] = survivors[package] (survivors[package] == "" ? "" : ", ") sprintf("`%s` %s", part[2], tolower(part[1]))
  }
}
function percent(killed, lived) { return killed + lived ? int(100 * killed / (killed + lived)) " %" : "" }
function row(name, k, l, n, t) { printf "| %s | %d | %d | %s | %d | %d |\n", name, k, l, percent(k, l), n, t }
END {
  print "| package | killed | lived | killed of covered | not covered | not tried |\n|---|---|---|---|---|---|"
  for (i = 1; i <= packages; i++) {
    p = order[i]
    row("internal/" p, count[p, "KILLED"] + 0, count[p, "LIVED"] + 0, count[p, "NOT COVERED"] + 0, count[p, "NOT TRIED"] + 0)
  }
  row("all", total["KILLED"], total["LIVED"], total["NOT COVERED"], total["NOT TRIED"])
  print "\nMutants that lived, as `file:line:column`:\n"
  for (i = 1; i <= packages; i++) if (survivors[order[i]] != "") print "- internal/" order[i] ": " survivors[order[i]]
  print ""
}
