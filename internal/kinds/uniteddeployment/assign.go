package uniteddeployment

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// selected refuses a selector that does not match what children would be labelled with: each would be
// released as soon as it is made, and another one be made for it.
func (p *Plan) selected(s *Snapshot, template *Template, matches labels.Selector) error {
	for i := range s.United.Spec.Topology.Subsets {
		given := template.childLabels(s.United.Spec.Selector, s.United.Spec.Topology.Subsets[i].Name, p.label)
		if !matches.Matches(labels.Set(given)) {
			return fmt.Errorf(
				"spec.selector does not match the labels of the workloads, %s: add what it asks for to metadata.labels of spec.template.%s",
				labels.Set(given), template.Kind)
		}
	}
	return nil
}

// assign finds the child of each subset, and those that go (UD-061 to UD-066).
func (p *Plan) assign(s *Snapshot, matches labels.Selector) {
	subsets := s.United.Spec.Topology.Subsets
	p.Subsets = make([]Verdict, len(subsets))
	place := map[string]*Verdict{}
	for i := range subsets {
		p.Subsets[i] = Verdict{Subset: &subsets[i], Action: Keep}
		place[subsets[i].Name] = &p.Subsets[i]
	}

	children := slices.SortedFunc(slices.Values(s.Children), older)
	var nameless []string
	for _, c := range children {
		v := place[c.Subset]
		switch {
		case c.Subset == "":
			nameless = append(nameless, c.String())
		case !matches.Matches(labels.Set(c.Object.GetLabels())):
			if !c.Going() {
				p.Release = append(p.Release,
					Removal{Child: c, Why: "the selector does not match it any more"})
			}
		case c.Kind != p.Template.Kind:
			p.delete(c, "the template is of another kind")
		case v == nil:
			p.delete(c, "there is no subset "+c.Subset+" any more")
		case v.Child == nil:
			v.Child = c
		case v.Child.Going() && !c.Going():
			v.Child = c
		}
	}

	switch n := len(nameless); { // one event for all of them
	case n == 1:
		p.note(corev1.EventTypeWarning, EventWithoutSubset, "%s has no label %s: it is left alone",
			nameless[0], SubsetName)
	case n > 1:
		p.note(corev1.EventTypeWarning, EventWithoutSubset,
			"%s and %d other workloads have no label %s: they are left alone", nameless[0], n-1, SubsetName)
	}

	for _, c := range children {
		if v := place[c.Subset]; v != nil && c.Kind == p.Template.Kind && v.Child != c && !c.Going() &&
			!slices.ContainsFunc(p.Release, func(r Removal) bool {
				return r.Child == c
			}) {
			p.Deletes = append(p.Deletes, Removal{c, "subset " + c.Subset + " has an older one", true})
		}
	}

	for _, c := range slices.SortedFunc(slices.Values(s.Orphans), older) {
		if v := place[c.Subset]; v != nil && v.Child == nil && c.Kind == p.Template.Kind && !c.Going() &&
			matches.Matches(labels.Set(c.Object.GetLabels())) {
			v.Child, v.Action = c, Adopt
		}
	}

	for i := range p.Subsets {
		v := &p.Subsets[i]
		if v.Child == nil {
			continue
		}
		for _, pod := range s.Pods[v.Child.Object.GetUID()] {
			if !readiness.Active(pod) {
				continue
			}
			v.pods = append(v.pods, pod)
			if v.There++; pod.Labels[RevisionHash] == p.label {
				if v.Updated++; readiness.Ready(pod) {
					v.UpdatedReady++
				}
			}
		}
	}
}

func (p *Plan) delete(c *Child, why string) {
	if !c.Going() {
		p.Deletes = append(p.Deletes, Removal{Child: c, Why: why})
	}
}

// clear keeps children from being deleted for which nothing does the work: other ones of their subset must be
// ready before, and while nothing can be created, what it would replace stays.
func (p *Plan) clear(s *Snapshot) {
	absent := slices.Contains(s.Absent, p.Template.Kind)
	p.Deletes = slices.DeleteFunc(p.Deletes, func(r Removal) bool {
		if p.Refused != nil || absent {
			return true
		}
		i := slices.IndexFunc(p.Subsets, func(v Verdict) bool { return v.Subset.Name == r.Child.Subset })
		if i < 0 || r.Child.Kind != p.Template.Kind ||
			r.Child.Total == 0 && len(s.Pods[r.Child.Object.GetUID()]) == 0 {
			return false
		}
		v := &p.Subsets[i]
		if v.Child != nil && v.Child.Observed && v.Child.Replicas == v.Wanted.Replicas &&
			v.Child.Ready >= v.Wanted.Replicas {
			return false
		}
		v.wait("%s goes when the older one, which is kept, is ready", r.Child)
		return true
	})
}
