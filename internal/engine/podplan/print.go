package podplan

import (
	"maps"
	"slices"

	"github.com/afloat-project/afloat/internal/engine/wording"
)

// String returns the plan as sentences.
func (p *Plan) String() string { return p.told(p.Verdicts).String() }

// told returns the plan with only the given verdicts, ready to be printed.
func (p *Plan) told(verdicts []*Verdict) *wording.Report {
	t := &wording.Report{Summary: slices.Concat(p.Sentences, p.pullSentences())}
	t.Lines = append(t.Lines, p.ClaimLines...)
	for _, creation := range p.Create {
		t.Add("pod "+creation.Name, "create %s", creation.origin())
	}
	for _, v := range verdicts {
		t.Add("pod "+v.Pod.Name, "%s: %s: %s", v.Action, v.Reason, v.Message)
	}
	return t
}

// digestAbove is the number of pods above which a plan is printed by groups of pods.
const digestAbove = 20

// Headline returns the plan without the pods that only wait for time or for kubelet, so that it changes only
// when a decision does. In a large set, pods with the same verdict share one line.
func (p *Plan) Headline() string { return p.headline().String() }

// Record returns the plan for the log; it is logged when the headline changes.
func (p *Plan) Record() []any {
	if len(p.Verdicts) <= digestAbove {
		return p.told(p.Verdicts).Record()
	}
	return p.headline().Record()
}

func (p *Plan) headline() *wording.Report {
	brief := slices.DeleteFunc(slices.Clone(p.Verdicts), func(v *Verdict) bool {
		return v.Action == Keep || v.Reason == ReasonGracePeriod || v.Reason == ReasonMinReadySeconds
	})

	if len(p.Verdicts)+len(p.Create) <= digestAbove {
		return p.told(brief)
	}

	type group struct {
		names []string
		words string
	}

	groups := map[string]*group{}
	add := func(key, name, words string) {
		if groups[key] == nil {
			groups[key] = &group{words: words}
		}
		groups[key].names = append(groups[key].names, name)
	}

	for _, creation := range p.Create {
		if creation.Revision == "" {
			add("create", creation.Name, "")
			continue
		}
		add("create "+creation.origin(), creation.Name, "")
	}

	for _, v := range brief {
		add(string(v.Action)+": "+string(v.Reason), v.Pod.Name, v.Message)
	}

	t := &wording.Report{Summary: p.Sentences}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		t.AddGroup(key, groups[key].names, groups[key].words)
	}

	return t
}

// origin returns what a pod is made from, or for.
func (c *Creation) origin() string {
	if c.Revision == "" {
		return "for node " + c.Node
	}
	return "from " + c.Revision
}
