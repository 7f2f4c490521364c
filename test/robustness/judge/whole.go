package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/afloat-project/afloat/test/robustness/record"
)

// atRest is asked about what managers send after everything has come to its end, also about what changes nothing.
var atRest = rule{
	name:    "nothing is written at rest",
	promise: "no manager sends any write but of its lease, events about itself, and the ends of series of events, when there is nothing to do",
}

// whole is about the record itself. What was not played, or not recorded, is not well.
var whole = rule{
	name: "record",
	promise: "the record is whole: workloads, rollouts of which users see some end, writes of managers, at least half of the " +
		"faults that were planned, and a time of rest, whose end is there",
}

// Progress is what users saw of the rollouts of a kind: how many they began, how many they saw end, and for how many
// they did not wait.
type Progress struct{ Begun, Over, Hurried int }

// ProgressOf returns the progress of each kind.
func ProgressOf(r *record.Record) map[string]Progress {
	all := map[string]Progress{}
	for _, o := range r.Rollouts {
		p := all[o.Resource]
		p.Begun++
		switch {
		case o.Over:
			p.Over++
		case o.Hurried:
			p.Hurried++
		}
		all[o.Resource] = p
	}
	return all
}

// FaultsOf counts the faults of each kind, those that were not injected or not ended as planned, and those that hit
// nothing.
func FaultsOf(r *record.Record) (kinds map[string]int, failed, idle int) {
	kinds = map[string]int{}
	for _, f := range r.Faults {
		kinds[f.Kind]++
		switch {
		case f.Error != "":
			failed++
		case f.Hits != nil && *f.Hits == 0:
			idle++
		}
	}
	return kinds, failed, idle
}

// patient is how many rollouts of a kind users must have waited for, so that it says something if they saw none end.
const patient = 5

// judgeWhole judges the record, after its changes.
func (v *Verdict) judgeWhole(r *record.Record, s *state) {
	v.Checked[whole.name]++
	wrong := func(format string, values ...any) {
		v.Findings = append(v.Findings, Finding{Rule: whole.name, Promise: whole.promise, Text: fmt.Sprintf(format, values...),
			Object: "record", Time: s.now})
	}
	phases := []string{record.FaultsBegin, record.FaultsEnd, record.RestEnds}
	if r.Phase(record.RestBegins).IsZero() {
		phases = phases[:2]
		v.Findings = append(v.Findings, Finding{Rule: converges.name, Promise: converges.promise,
			Text: "no rest was reached after the faults had ended", Object: "record", Time: s.now})
	}
	for _, name := range phases {
		if r.Phase(name).IsZero() {
			wrong("it is cut off: phase %q is missing", name)
		}
	}
	if len(r.Requests) == 0 {
		wrong("no write of a manager is recorded")
	}
	if v.Checked[converges.name] == 0 {
		wrong("no workload is there at the end")
	}
	_, failed, _ := FaultsOf(r)
	if good := len(r.Faults) - failed; 2*good < r.Run.Faults {
		wrong("%d faults were planned, and %d were injected", r.Run.Faults, good)
	}
	progress := ProgressOf(r)
	if len(progress) == 0 {
		wrong("no user rolled anything out")
	}
	for kind, p := range progress {
		if p.Over == 0 && p.Begun-p.Hurried >= patient {
			wrong("users waited for the end of %d rollouts of %s, and saw none", p.Begun-p.Hurried, kind)
		}
	}
}

// judgeRest looks for writes at rest.
func (v *Verdict) judgeRest(r *record.Record) {
	begin, end := r.Phase(record.RestBegins), r.Phase(record.RestEnds)
	if begin.IsZero() {
		return
	}
	v.Checked[atRest.name]++ // once, of the whole time
	first, times := map[string]Finding{}, map[string]int{}
	var what []string
	for i := range r.Requests {
		q := &r.Requests[i]
		own := slices.Contains([]string{"leases", "events"}, strings.Split(strings.TrimPrefix(keyOf(q.Path), "kruise-system/"), "/")[0])
		// client-go writes some minutes after the last one of equal events that they have ended, for all series at once.
		own = own || q.Verb == "PATCH" && strings.HasPrefix(q.Path, "/apis/events.k8s.io/")
		if q.Begin.Before(begin) || !end.IsZero() && q.Begin.After(end) || own {
			continue
		}
		of := q.Verb + " " + q.Path
		if times[of]++; times[of] == 1 {
			what = append(what, of)
			first[of] = Finding{Rule: atRest.name, Promise: atRest.promise, Object: q.Path, Revision: q.Revision, By: q.Manager,
				Time: q.Begin}
		}
	}
	slices.Sort(what)
	for _, of := range what {
		f := first[of]
		f.Text = fmt.Sprintf("%s, %d times, and there is nothing to do", of, times[of])
		v.Findings = append(v.Findings, f)
	}
}
