package revision

import (
	"cmp"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// History contains the stored revisions of one owner.
type History struct {
	// Stored are the revisions, the oldest first.
	Stored []*appsv1.ControllerRevision
	same   func(stored *appsv1.ControllerRevision, data []byte) bool
}

// NewHistory orders revisions by number, then by age and by name. same reports whether a revision is
// equivalent to the data, whoever wrote it.
func NewHistory(
	revisions []*appsv1.ControllerRevision, same func(stored *appsv1.ControllerRevision, data []byte) bool,
) *History {
	return &History{
		same: same,
		Stored: slices.SortedFunc(slices.Values(revisions), func(a, b *appsv1.ControllerRevision) int {
			return cmp.Or(cmp.Compare(a.Revision, b.Revision),
				a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		}),
	}
}

// Find returns the newest revision that is equivalent to the data, nil if there is none (CS-082, SS-184). It
// starts with the last revision, which usually has the same bytes, because comparing revisions with other
// bytes costs more.
func (h *History) Find(data []byte) *appsv1.ControllerRevision {
	for _, r := range slices.Backward(h.Stored) {
		if h.same(r, data) {
			return r
		}
	}
	return nil
}

// Last returns the revision with the highest number, nil if there is none.
func (h *History) Last() *appsv1.ControllerRevision {
	if len(h.Stored) == 0 {
		return nil
	}
	return h.Stored[len(h.Stored)-1]
}

// Next returns the number for a revision that becomes the newest.
func (h *History) Next() int64 {
	if last := h.Last(); last != nil {
		return last.Revision + 1
	}
	return 1
}

// Name returns the name and the hash of a new revision, and the collision count that leads to them: the given
// one, or a higher one. No revision with other data has this name (CS-084, SS-185). taken are all revisions
// whose names count, including those of other owners.
func (h *History) Name(
	owner string, data []byte, collisions *int32, taken []*appsv1.ControllerRevision,
) (name, hash string, count *int32) {
	n := int32(0)
	if collisions != nil {
		n = *collisions
	}

	for hash = Hash(data, n); ; hash = Hash(data, n) {
		name = Name(owner, hash)
		if n == math.MaxInt32 ||
			!slices.ContainsFunc(taken, func(r *appsv1.ControllerRevision) bool {
				return r.Name == name && !h.same(r, data)
			}) {
			return name, hash, collisions
		}
		n++
		grown := n
		collisions = &grown
	}
}
