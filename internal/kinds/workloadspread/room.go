package workloadspread

import (
	"cmp"
	"slices"
	"strings"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

const (
	// askedMost is how many deletions that have not happened one ledger is told of at most. After that, places that further ones
	// have freed are not seen until the controller counts.
	askedMost = 20
	// askedAtOnce is how many deletions are asked about at once. It begins with one and doubles, as long as more are wanted.
	askedAtOnce = 16
)

// BookedDeletion is the deletion of a pod, given by its name, that was booked at a time.
type BookedDeletion struct {
	Pod string
	At  time.Time
}

// looked is what one ledger knows about the deletions that are booked for a version.
type looked struct {
	// happened holds by pod whether the deletion is known to have happened.
	happened map[string]bool
	// open holds by subset the pods that may be asked about, in that order, or nil before the first look.
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
		l.atOnce = min(max(2*l.atOnce, 1), askedAtOnce)
		var names []string
		for len(p.looked.open[i]) > 0 && len(names) < min(askedMost-l.stayed, l.atOnce) {
			name := p.looked.open[i][0]
			p.looked.open[i] = p.looked.open[i][1:]
			if _, asked := p.looked.happened[name]; !asked { // a pod may have been made again under its name
				names = append(names, name)
			}
		}
		l.ask(p, i, names...)
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
				p.learn(i, name, going)
				continue
			}
		}
		open = append(open, name)
	}
	slices.SortFunc(open, func(a, b string) int {
		return cmp.Or(deleting[b].Compare(deleting[a].Time), strings.Compare(b, a))
	})
	// Of many that are on their way, the oldest have happened; of many that were refused, the newest have not been. So they are
	// asked about in turns.
	turns := make([]string, 0, len(open))
	for first, last := 0, len(open)-1; first <= last; first, last = first+1, last-1 {
		if turns = append(turns, open[first]); first < last {
			turns = append(turns, open[last])
		}
	}
	p.looked.open[i] = turns
}

// happened reports whether the deletion of a pod is known to have happened, and asks unless that was asked before.
func (l *Ledger) happened(p *page, i int, name string) bool {
	if l.Going == nil {
		return true
	}
	if _, asked := p.looked.happened[name]; !asked {
		l.ask(p, i, name)
	}
	return p.looked.happened[name]
}

// ask asks about the deletions of pods of a subset.
func (l *Ledger) ask(p *page, i int, names ...string) {
	booked := make([]BookedDeletion, len(names))
	for j, name := range names {
		booked[j] = BookedDeletion{name, p.list[i].DeletingPods[name].Time}
	}
	for j, going := range l.Going(booked) {
		if p.learn(i, names[j], going); !going {
			l.stayed++
		}
	}
}

func (p *page) learn(i int, name string, going bool) {
	if p.looked.happened[name] = going; going {
		p.looked.sure[i]++
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
		case l.stayed >= askedMost:
			return false
		case l.Going([]BookedDeletion{{name, s.DeletingPods[name].Time}})[0]:
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
