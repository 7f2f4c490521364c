package judge

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/test/robustness/record"
)

// standing is the part of the order in which a CloneSet chooses pods to delete that can be judged from a record
// (CS-141 to CS-144), and what must be the same for two pods to be compared.
type standing struct {
	// rank is 0 without a node, 1 if pending, 2 if unknown, 3 if not in service, 4 in service.
	rank, cost int
	// revision is the revision of the pod. The choice among pods of a revision is one, and those of another
	// revision may have to stay.
	revision string
}

func standingOf(o *object) standing {
	s := standing{rank: 4, revision: o.Labels[pub.ControllerRevisionHash]}
	switch {
	case o.pod.Spec.NodeName == "":
		s.rank = 0
	case o.pod.Status.Phase == corev1.PodPending:
		s.rank = 1
	case o.pod.Status.Phase == corev1.PodUnknown:
		s.rank = 2
	case !serving(o):
		s.rank = 3
	}
	if n, err := strconv.ParseInt(o.Annotations[corev1.PodDeletionCost], 10, 32); err == nil {
		s.cost = int(n)
	}
	return s
}

// noteStanding keeps since when a pod has stood in the order where it stands.
func (s *state) noteStanding(c *change) {
	if c.Resource != "pods" || c.after == nil {
		return
	}
	c.after.standing, c.after.since = standingOf(c.after), c.Time
	if c.before == nil {
		c.after.made = c.by
		return
	}
	c.after.made, c.after.served = c.before.made, c.before.served || serving(c.before)
	if c.before.standing == c.after.standing {
		c.after.since = c.before.since
	}
}

// ahead is what the record has after now, and what managers asked for and may not have got.
type ahead struct {
	// going is when each pod began to go, deletions are when managers sent deletions of it.
	going     map[types.UID]time.Time
	deletions map[string][]time.Time
}

func lookAhead(r *record.Record) ahead {
	a := ahead{going: map[types.UID]time.Time{}, deletions: map[string][]time.Time{}}
	uids := map[string]types.UID{}
	for i := range r.Changes {
		c := &r.Changes[i]
		if c.Resource != "pods" {
			continue
		}
		at := c.Namespace + "/" + c.Name
		var pod struct {
			Metadata struct {
				UID               types.UID
				DeletionTimestamp string
			}
		}
		// What cannot be read is gone; Judge says what is wrong with it.
		_ = json.Unmarshal(c.Object, &pod)
		if pod.Metadata.UID != "" {
			uids[at] = pod.Metadata.UID
		}
		if _, known := a.going[uids[at]]; !known && (len(c.Object) == 0 || pod.Metadata.DeletionTimestamp != "") {
			a.going[uids[at]] = c.Time
		}
	}
	for i := range r.Requests {
		if q := &r.Requests[i]; q.Verb == "DELETE" {
			k := keyOf(q.Path)
			a.deletions[k] = append(a.deletions[k], q.Begin)
		}
	}
	return a
}

// stays reports whether a pod is there for long after now, and no manager tries to delete it around now.
func (s *state) stays(o *object) bool {
	if at, ok := s.ahead.going[o.UID]; ok && at.Sub(s.now) <= Lag {
		return false
	}
	for _, at := range s.ahead.deletions[strings.Join([]string{o.Namespace, "pods", o.Name}, "/")] {
		if s.now.Sub(at).Abs() <= Lag {
			return false
		}
	}
	return true
}

// order is the choice of pods of a CloneSet that gets smaller (CS-140 to CS-144).
var order = rule{
	name:    "order of deletion",
	promise: "a CloneSet that gets smaller deletes pods that are not in service first, then those that cost less",
	overlap: true,
	check: func(s *state, c *change) (bool, string) {
		if !c.goes() || c.by == "" {
			return false, ""
		}
		w := s.workload(c.before)
		if w == nil || w.resource != "clonesets" || w.DeletionTimestamp != nil || specified(w, c.before) {
			return false, ""
		}
		for _, sp := range s.specs(w) {
			if share(sp.UpdateStrategy.RollingUpdate.MaxSurge, sp.replicas(), 0, true) > 0 {
				return false, "" // pods of a surge go by another order (CS-103)
			}
		}
		settled := func(o *object) bool { return s.now.Sub(o.since) > Lag }
		if !settled(c.before) {
			return false, ""
		}
		is, asked := c.before.standing, false
		for _, other := range s.pods[w.UID] {
			was := other.standing
			if other.UID == c.before.UID || !active(other) || specified(w, other) || !settled(other) ||
				was.revision != is.revision || !s.stays(other) {
				continue
			}
			switch {
			case was.rank < 4 && was.rank < is.rank:
				return true, fmt.Sprintf("%s is not in service since %s, and stays", other.key, other.since.UTC().Format("15:04:05"))
			case was.rank == 4 && is.rank == 4 && was.cost < is.cost:
				return true, fmt.Sprintf("the pod costs %d, and %s costs %d, and stays", is.cost, other.key, was.cost)
			}
			asked = asked || is.rank != was.rank || is.cost != was.cost
		}
		return asked, ""
	},
}
