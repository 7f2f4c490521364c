package statefulset

import (
	"fmt"
	"testing"

	"github.com/afloat-project/afloat/api/pub"
)

// TestNoPodGoesBeforeItsClaimsSettle shows that no pod is deleted by the plan that changes the owners of its
// PVCs: if that write fails, the PVC of a pod that is made anew would go with it, or that of one that goes
// would stay (ASTS-262 (part), ASTS-263 (part)).
func TestNoPodGoesBeforeItsClaimsSettle(t *testing.T) {
	for name, tt := range map[string]struct {
		options []option
		states  []state
		ordinal int
		want    string
	}{
		"one that has ended":           {nil, []state{failed}, 0, "-0"},
		"one that is specified":        {nil, []state{specified}, 0, "-0"},
		"one that is outdated":         {nil, []state{labelled("controller-revision-hash", "web-old")}, 0, "-0"},
		"one whose hook let go":        {[]option{hooks}, []state{in(pub.LifecycleStatePreparingDelete), specified}, 0, "-0"},
		"one that is no slot":          {nil, nil, 1, "-1"},
		"no slot, and its hook let go": {[]option{hooks}, []state{in(pub.LifecycleStatePreparingDelete)}, 1, "-1"},
		"no slot, and it has ended":    {nil, []state{failed}, 1, "-1"},
	} {
		for _, more := range [][]option{nil, {inParallel}} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, 1, append(append([]option{withClaims}, tt.options...), more...)...)
				w.at("a:1")
				if tt.ordinal > 0 {
					w.pod(0, "a:1")
				}
				w.pod(tt.ordinal, "a:1", tt.states...)
				w.ownPod(tt.ordinal)
				owners := fmt.Sprintf("owners %d []", tt.ordinal)
				w.expect(owners)
				w.claim(tt.ordinal).OwnerReferences = nil
				w.expect(tt.want)
			})
		}
	}
}

// TestAnUnboundClaimHoldsUpNothing: a broken template keeps the pod from a node, and so its PVC from a
// volume.
func TestAnUnboundClaimHoldsUpNothing(t *testing.T) {
	for name, change := range map[string]func(*world){
		"the same size": func(*world) {},
		"a larger size": func(w *world) { setClaims(w.Set, "2Gi") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, withClaims, follow, policy(possible))
			w.at("a:1")
			w.pod(0, "a:1", pending)
			w.claim(0).Status.Capacity = nil
			w.at("a:2")
			change(w)
			w.expect("~0")
		})
	}
}
