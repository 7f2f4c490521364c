package workloadspread

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// bookedPod is a pod, or a creation that was admitted and has not ended yet.
type bookedPod struct {
	key, name, subset string
	generated         bool
	stored, doomed    bool
	active            bool
	admitted          time.Time
}

// bookings is a cluster: pods that come and go, webhooks that book, and a controller that sees pods late.
type bookings struct {
	spread *appsv1beta1.WorkloadSpread
	pods   []*bookedPod
	// seen is what the controller's cache has.
	seen map[*bookedPod]Seen
	// spec is the generation that a key was booked in. A booking that is used again holds its place under a
	// quota that is lower now.
	spec map[string]int64
	now  time.Time
	next int
}

func (b *bookings) write(d Decision) {
	if d.List != nil {
		b.spread = b.spread.DeepCopy()
		if b.spread.Status.VersionedSubsetStatuses == nil {
			b.spread.Status.VersionedSubsetStatuses = map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{}
		}
		b.spread.Status.VersionedSubsetStatuses["v"] = d.List
	}
}

// used is how many pods are in a subset or will be. Those that are about to go may stay, since their deletion may be refused.
func (b *bookings) used(subset string) (n int32) {
	for _, p := range b.pods {
		if p.subset == subset && (p.active || !p.stored) {
			n++
		}
	}
	return n
}

func (b *bookings) ledger() *Ledger {
	l := NewLedger(b.spread, nil, b.now)
	l.Going = each(func(name string) bool {
		return !slices.ContainsFunc(b.pods, func(o *bookedPod) bool { return o.name == name && o.active })
	})
	return l
}

func (b *bookings) place(r *rapid.T, p *bookedPod) {
	l := b.ledger()
	d, commit := l.Create(Creation{Key: p.key, Generated: p.generated, Version: "v"})
	commit()
	d.List = l.Changed()["v"]
	if d.Subset == nil {
		return
	}
	again := slices.ContainsFunc(b.pods, func(o *bookedPod) bool { return o.key == p.key && !o.stored })
	booked := slices.ContainsFunc(b.spread.Status.VersionedSubsetStatuses["v"],
		func(s appsv1beta1.WorkloadSpreadSubsetStatus) bool { return has(s.CreatingPods, p.key) })
	if d.List != nil && !booked {
		b.spec[p.key] = b.spread.Generation
	}
	if quota := quotaOf(d.Subset, nil); quota != Unlimited && !again && b.spec[p.key] == b.spread.Generation &&
		b.used(d.Subset.Name) >= quota {
		r.Fatalf("%s goes to %s, which has %d of %d\n%+v", p.key, d.Subset.Name, b.used(d.Subset.Name), quota, b.spread.Status)
	}
	b.write(d)
	if !again {
		p.subset, p.admitted = d.Subset.Name, b.now
		b.pods = append(b.pods, p)
	}
}

// see brings the controller's cache up to date with one pod.
func (b *bookings) see(p *bookedPod) {
	s := Seen{Name: p.name, Version: "v", Subset: p.subset, Active: p.active, Created: p.admitted}
	if p.generated {
		s.Booking = p.key
	}
	b.seen[p] = s
}

// unseen are the pods whose state the cache does not have. Events come in the order of each pod.
func (b *bookings) unseen() (all []*bookedPod) {
	for _, p := range b.pods {
		if s, ok := b.seen[p]; p.stored && (!ok || s.Active != p.active) {
			all = append(all, p)
		}
	}
	return all
}

func (b *bookings) count(r *rapid.T) {
	quotas, err := Quotas(b.spread.Spec.Subsets, 0)
	if err != nil {
		r.Fatal(err)
	}
	// A pod of the same name as an earlier one replaces that in the cache.
	byName := map[string]Seen{}
	for _, p := range b.pods {
		if s, ok := b.seen[p]; ok {
			byName[p.name] = s
		}
	}
	var pods []Seen
	for _, s := range byName {
		pods = append(pods, s)
	}
	counted := Count(quotas, b.spread.Status.VersionedSubsetStatuses["v"], "v", pods, b.now)
	b.write(Decision{List: counted.Subsets})
	b.spread.Status.ObservedGeneration = b.spread.Generation
}

// settle ends every request that is under way, and lets the cache see everything.
func (b *bookings) settle(r *rapid.T) {
	for _, p := range b.pods {
		b.finish(r, p)
	}
	for _, p := range b.unseen() {
		b.see(p)
	}
}

// finish stores an admitted pod, or refuses it after all.
func (b *bookings) finish(r *rapid.T, p *bookedPod) {
	if p.stored {
		return
	}
	p.stored = true
	p.active = !slices.ContainsFunc(b.pods, func(o *bookedPod) bool { return o != p && o.name == p.name && o.active }) &&
		rapid.IntRange(0, 4).Draw(r, "created") > 0
	if !p.active {
		b.pods = slices.DeleteFunc(slices.Clone(b.pods), func(o *bookedPod) bool { return o == p })
	}
}

// WS-072, WS-073, WS-074 (part), WS-076, WS-103, WS-114, WS-150 to WS-153: whatever the order of creations,
// deletions that happen or are refused, repeated requests, pods that end, changes of the spec and counts from a cache that lags, no pod is put into
// a subset that has its quota already.
func TestQuotasHoldProperty(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := &bookings{now: workloadspreadtest.BookingTime, seen: map[*bookedPod]Seen{}, spec: map[string]int64{},
			spread: &appsv1beta1.WorkloadSpread{ObjectMeta: metav1.ObjectMeta{Name: "ws", Generation: 1}}}
		limits := func() (subsets []appsv1beta1.WorkloadSpreadSubset) {
			for _, name := range rapid.Permutation([]string{"a", "b", "c"}).Draw(r, "order") {
				s := appsv1beta1.WorkloadSpreadSubset{Name: name}
				s.MaxReplicas = new(intstr.FromInt32(rapid.Int32Range(0, 3).Draw(r, "quota")))
				subsets = append(subsets, s)
			}
			return subsets
		}
		b.spread.Spec.TargetReference = &appsv1beta1.TargetReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web"}
		b.spread.Spec.Subsets = limits()
		one := func(keep func(*bookedPod) bool) *bookedPod {
			var found []*bookedPod
			for _, p := range b.pods {
				if keep(p) {
					found = append(found, p)
				}
			}
			if len(found) == 0 {
				return nil
			}
			return rapid.SampledFrom(found).Draw(r, "pod")
		}
		r.Repeat(map[string]func(*rapid.T){
			"create with a generated name": func(r *rapid.T) {
				b.next++
				b.place(r, &bookedPod{key: fmt.Sprintf("id-%d", b.next), name: fmt.Sprintf("p-%d", b.next), generated: true})
			},
			"create by name": func(r *rapid.T) {
				name := fmt.Sprintf("n-%d", rapid.IntRange(0, 4).Draw(r, "name"))
				if b.next > 0 && rapid.IntRange(0, 3).Draw(r, "of a former pod") == 0 {
					name = fmt.Sprintf("p-%d", rapid.IntRange(1, b.next).Draw(r, "number"))
				}
				// A pod of that name that is there makes the API server refuse this one, before or after it
				// was admitted.
				if slices.ContainsFunc(b.pods, func(o *bookedPod) bool {
					return o.name == name && (o.active || o.generated &&
						!o.stored)
				}) {
					return
				}
				// Clocks may differ: within this time an earlier pod of the name that the cache still shows
				// cannot be told from this one.
				if slices.ContainsFunc(b.pods, func(o *bookedPod) bool {
					return o.name == name && o.stored &&
						b.now.Sub(o.admitted) <= CreationTimeout
				}) {
					return
				}
				b.place(r, &bookedPod{key: name, name: name})
			},
			"create what exists": func(*rapid.T) { // and be answered so
				if p := one(func(p *bookedPod) bool { return p.active }); p != nil {
					l := b.ledger()
					d, commit := l.Create(Creation{Key: p.name, Version: "v"})
					commit()
					d.List = l.Changed()["v"]
					b.write(d)
				}
			},
			"end a request": func(r *rapid.T) {
				if p := one(func(p *bookedPod) bool { return !p.stored }); p != nil {
					b.finish(r, p)
				}
			},
			"repeat a request": func(r *rapid.T) {
				if p := one(func(p *bookedPod) bool { return !p.stored }); p != nil {
					b.place(r, p)
				}
			},
			"delete": func(*rapid.T) {
				if p := one(func(p *bookedPod) bool { return p.active && !p.doomed }); p != nil {
					deletion := Deletion{Name: p.name, Version: "v", Subset: p.subset, Created: p.admitted}
					if p.generated {
						deletion.Booking = p.key
					}
					b.write(Delete(b.spread, nil, deletion, b.now))
					p.doomed = true
				}
			},
			"refuse a deletion": func(*rapid.T) {
				if p := one(func(p *bookedPod) bool { return p.active && p.doomed }); p != nil {
					p.doomed = false
				}
			},
			"go": func(*rapid.T) {
				if p := one(func(p *bookedPod) bool { return p.active && p.doomed }); p != nil {
					p.active = false
				}
			},
			"end by itself": func(*rapid.T) {
				if p := one(func(p *bookedPod) bool { return p.active }); p != nil {
					p.active = false
				}
			},
			"see": func(r *rapid.T) {
				if all := b.unseen(); len(all) > 0 {
					b.see(rapid.SampledFrom(all).Draw(r, "pod"))
				}
			},
			"count": func(r *rapid.T) { b.count(r) },
			"change the spec": func(*rapid.T) {
				b.spread = b.spread.DeepCopy()
				b.spread.Generation++
				b.spread.Spec.Subsets = limits()
			},
			"time passes": func(r *rapid.T) {
				b.settle(r) // no request and no cache is as late as bookings are kept
				b.now = b.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(r, "seconds")) * time.Second)
				for _, p := range b.pods { // and an admitted deletion happens
					if p.doomed {
						p.active = false
						b.see(p)
					}
				}
			},
			"": func(*rapid.T) {},
		})
	})
}
