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
	rest := r.Phase(record.RestBegins)
	v.lives(r.Samples)
	s.ahead, s.crashes, s.calm = lookAhead(r), crashes(r.Faults), r.Phase(record.FaultsEnd)
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
		if !rest.IsZero() && c.Time.After(rest) && c.by != "" && c.Moves() {
			v.add(s, &atRest, false, "a manager writes, and there is nothing to do", c)
		}
	}
	if !rest.IsZero() {
		v.Checked[atRest.name]++ // once, of the whole time
		v.atEnd(s, all)
	} else {
		v.Findings = append(v.Findings, Finding{Rule: converges.name, Promise: converges.promise,
			Text: "no rest was reached after the faults had ended", Time: s.now})
		v.atEnd(s, all)
	}

	return v, nil
}

// note keeps what rules need to know of a change, before it is applied.
func (s *state) note(c *change, v *Verdict) {
	s.noteRun(c)
	s.noteMemories(c)
	s.noteStanding(c)
	s.noteCauses(c)
	switch {
	case c.Resource == "leases":
		if c.after != nil && c.by != "" && c.after.holder != "" {
			s.holder = c.by
		}
	case c.leaves() && c.by == "":
		s.lost = append(s.lost, lost{c.before.owner(), c.key(), c.Time, active(c.after)})
	case c.leaves():
		v.Voluntary++
	}
	if c.Resource == "pods" && c.by != "" && s.holder != "" && c.by != s.holder {
		s.overlapped = c.Time
		v.Overlaps++
	}
}

func (v *Verdict) add(s *state, r *rule, asked bool, text string, c *change) {
	if asked {
		v.Checked[r.name]++
	}
	if text != "" {
		v.Findings = append(v.Findings, Finding{Rule: r.name, Promise: r.promise, Text: text,
			Object: c.key().String(), Revision: c.Revision, By: c.by, Time: c.Time, Known: r.overlap && s.overlaps()})
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
