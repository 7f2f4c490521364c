package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/afloat-project/afloat/test/robustness/record"
)

// Finding is a promise that was broken.
type Finding struct {
	// Rule is the name of the rule, Promise what it says.
	Rule, Promise string
	// Text says what happened, to which object.
	Text, Object string
	// Revision is the change that broke it, and By the process of the manager that made it. They are empty
	// for rules about the end.
	Revision int64
	By       string
	Time     time.Time
	// Known is set if it is a documented consequence of two managers that write at once.
	Known bool
}

// Verdict is what the judge found.
type Verdict struct {
	// Findings are all findings, those that are known consequences included.
	Findings []Finding
	// Checked says for each rule how often it was asked. A rule that was never asked shows nothing.
	Checked map[string]int
	// Voluntary is how often a manager took a pod out of service, and Overlaps how often a manager wrote a
	// pod while another one had the lease.
	Voluntary, Overlaps int
	// Lives are what the processes of managers took that lived long enough.
	Lives []Life
}

// Violations returns the findings that are no known consequences.
func (v *Verdict) Violations() []Finding {
	return slices.DeleteFunc(slices.Clone(v.Findings), func(f Finding) bool { return f.Known })
}

// rule is one promise.
type rule struct {
	name, promise string
	// overlap is set if two managers that write at once may break it, by decision 0004.
	overlap bool
	// check looks at a change and the state after it. It returns whether the change is one that the rule is
	// about, and what is wrong, if anything is.
	check func(s *state, c *change) (bool, string)
	// atEnd looks at the state at the end, object by object.
	atEnd func(s *state, o *object) (bool, string)
}

// Judge judges a record.
func Judge(r *record.Record) (*Verdict, error) {
	v := &Verdict{Checked: map[string]int{}}
	s, who, all := newState(), newAuthors(r.Requests), rules()
	v.lives(r.Samples)
	s.ahead, s.crashes, s.calm = lookAhead(r), crashes(r.Faults), r.Phase(record.FaultsEnd)
	s.pulled = r.Run.Nodes > 0
	for i := range r.Changes {
		c := &change{Change: r.Changes[i]}
		after, err := parse(&c.Change)
		if err != nil {
			return nil, err
		}
		c.before, c.after = s.objects[c.key()], after
		s.now = c.Time
		if c.by = who.of(c); s.asked(c) {
			c.by = ""
		}
		s.note(c, v)
		s.apply(c)
		for j := range all {
			if all[j].check == nil {
				continue
			}
			asked, text := all[j].check(s, c)
			v.add(s, &all[j], asked, text, c)
		}
	}
	v.atEnd(s, all)
	v.judgeRest(r)
	v.judgeWhole(r, s)

	return v, nil
}

// note keeps what rules need to know of a change, before it is applied.
func (s *state) note(c *change, v *Verdict) {
	s.noteRun(c)
	s.noteMemories(c)
	s.noteStanding(c)
	noteApart(c)
	s.noteCauses(c)
	switch {
	case c.Resource == "leases":
		if c.after != nil && c.by != "" && c.after.holder != "" && c.by != s.holder {
			s.deposed[s.holder] = c.Time
			s.holder = c.by
			delete(s.deposed, c.by)
		}
	case c.leaves() || c.goes():
		s.lost = append(slices.DeleteFunc(s.lost, func(l lost) bool { return !s.late(l.at) }), lost{c, c.Time})
	}
	if c.leaves() && c.by != "" {
		v.Voluntary++
	}
	if c.goes() {
		s.gone[c.key()] = c.Time
	}
	if c.Resource == "pods" && c.by != "" && s.holder != "" && c.by != s.holder {
		s.overlapped[c.owner()] = c.Time
		if s.deposed[c.by].IsZero() {
			s.deposed[c.by] = c.Time // it never had it
		}
		v.Overlaps++
	}
}

// lease is about managers that go on without it. What they have sent may arrive later, and they need a moment to
// learn of it.
var lease = rule{
	name:    "lease",
	promise: "a manager whose lease another one has taken writes no pods any more after 45 seconds",
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "pods" || c.by == "" || s.holder == "" {
			return false, ""
		}
		if at := s.deposed[c.by]; c.by != s.holder && !s.late(at) {
			return true, fmt.Sprintf("%s has the lease, and %s is without it since %s", s.holder, c.by, at.UTC().Format("15:04:05"))
		}
		return true, ""
	},
}

func (v *Verdict) add(s *state, r *rule, asked bool, text string, c *change) {
	if asked {
		v.Checked[r.name]++
	}
	if text != "" {
		v.Findings = append(v.Findings, Finding{Rule: r.name, Promise: r.promise, Text: text,
			Object: c.key().String(), Revision: c.Revision, By: c.by, Time: c.Time, Known: r.overlap && s.overlaps(c)})
	}
}

func (v *Verdict) atEnd(s *state, all []rule) {
	keys := make([]key, 0, len(s.objects))
	for k := range s.objects {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Compare(a.String(), b.String()) })
	for _, k := range keys {
		for i := range all {
			if all[i].atEnd == nil {
				continue
			}
			asked, text := all[i].atEnd(s, s.objects[k])
			if asked {
				v.Checked[all[i].name]++
			}
			if text != "" {
				v.Findings = append(v.Findings, Finding{Rule: all[i].name, Promise: all[i].promise, Text: text,
					Object: k.String(), Revision: s.objects[k].revision, Time: s.now})
			}
		}
	}
}

// Print describes a finding, with the faults that were there at the time, or not long before.
func Print(f Finding, r *record.Record) string {
	text := fmt.Sprintf("%s: %s\n  %s\n  %s", f.Rule, f.Promise, f.Object, f.Text)
	if f.Revision != 0 {
		text += fmt.Sprintf("\n  revision %d at %s", f.Revision, f.Time.UTC().Format("15:04:05.000"))
	}
	if f.By != "" {
		text += ", written by manager " + f.By
	}
	for _, fault := range r.Faults {
		if fault.Begin.Before(f.Time.Add(time.Second)) && fault.End.After(f.Time.Add(-20*time.Second)) {
			text += fmt.Sprintf("\n  fault %d: %s of %s, %s to %s", fault.Number, fault.Kind, fault.Target,
				fault.Begin.UTC().Format("15:04:05.0"), fault.End.UTC().Format("15:04:05.0"))
		}
	}
	return text + "\n"
}
