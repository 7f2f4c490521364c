package workloadspread

import (
	"cmp"
	"slices"
	"strings"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// askedMost is how many deletions that have not happened one ledger finds at most. After that, places that further ones have freed
// are not seen until the controller counts.
const askedMost = 20

// looked is what one ledger knows about the deletions that are booked for a version.
type looked struct {
	// happened holds by pod whether the deletion is known to have happened.
	happened map[string]bool
	// open holds by subset the pods that may be asked about, newest bookings first, or nil before the first look.
	open map[int][]string
	// sure counts by subset the deletions in the list that are known to have happened.
	sure map[int]int64
}

// room reports whether a subset has a free place, even if deletions that were admitted have not happened: those free none, and stay
// booked, since they may happen yet (WS-074).
func (l *Ledger) room(p *page, i int) bool {
	s := &p.list[i]
	if !free(s) || s.MissingReplicas == Unlimited || len(s.DeletingPods) == 0 || l.Going == nil {
		return free(s)
	}
	// needed is how many of the deletions must have happened.
	needed := int64(s.Replicas) + int64(len(s.CreatingPods)) + 1 - int64(quotaOf(&l.spread.Spec.Subsets[i], l.target))
	if needed <= 0 {
		return true
	}
	if needed > int64(len(s.DeletingPods)) {
		return false
	}

	if p.looked.open[i] == nil {
		l.look(p, i)
	}
	for p.looked.sure[i] < needed && len(p.looked.open[i]) > 0 && l.stayed < askedMost {
		name := p.looked.open[i][0]
		p.looked.open[i] = p.looked.open[i][1:]
		l.happened(p, i, name)
	}
	return p.looked.sure[i] >= needed
}

// look finds what is known about the deletions of a subset without asking, and sorts the others.
func (l *Ledger) look(p *page, i int) {
	deleting, open := p.list[i].DeletingPods, []string{}
	for name, at := range deleting {
		if _, asked := p.looked.happened[name]; asked {
			continue
		}
		if l.Known != nil {
			if going, known := l.Known(name, at.Time); known {
				l.learn(p, i, name, going)
				continue
			}
		}
		open = append(open, name)
	}
	// Older ones are likely to stay, since the controller has removed those that have happened.
	slices.SortFunc(open, func(a, b string) int {
		return cmp.Or(deleting[b].Compare(deleting[a].Time), strings.Compare(b, a))
	})
	p.looked.open[i] = open
}

// happened reports whether the deletion of a pod is known to have happened, and asks unless that was asked before.
func (l *Ledger) happened(p *page, i int, name string) bool {
	if l.Going == nil {
		return true
	}
	if going, asked := p.looked.happened[name]; asked {
		return going
	}
	going := l.Going(name, p.list[i].DeletingPods[name].Time)
	l.learn(p, i, name, going)
	return going
}

func (l *Ledger) learn(p *page, i int, name string, going bool) {
	if p.looked.happened[name] = going; going {
		p.looked.sure[i]++
	} else {
		l.stayed++
	}
}

// gone settles a deletion that has happened.
func (l *Ledger) gone(p *page, i int, name string) {
	gone(p.change(i), name)
	if l.Going != nil {
		p.looked.happened[name] = false // that of the next pod of the name
		p.looked.sure[i]--
	}
}

// refused forgets the deletions that would be settled and have not happened: nobody counts, and their pods would free places
// (WS-153). It returns false if some could not be asked about, which is done with the next decisions.
func (l *Ledger) refused(s *appsv1beta1.WorkloadSpreadSubsetStatus) bool {
	for _, name := range uncounted(s.DeletingPods, nil, uncountedMost, l.now) {
		switch {
		case l.Going == nil:
			return true
		case l.stayed == askedMost:
			return false
		case l.Going(name, s.DeletingPods[name].Time):
			continue
		}
		l.stayed++
		delete(s.DeletingPods, name)
		if s.MissingReplicas > 0 {
			s.MissingReplicas--
		}
	}
	return true
}
