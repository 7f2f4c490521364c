package statefulset

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// TestPodsGetBackWhatIsTheirs shows ASTS-129: in each plan pods that are there get back the labels of their
// identity, their PVCs the owners, and those that lack a volume are replaced, in which ever state the set is.
func TestPodsGetBackWhatIsTheirs(t *testing.T) {
	unlabelled := func(pod *corev1.Pod) { delete(pod.Labels, "statefulset.kubernetes.io/pod-name") }
	identity := "0: label apps.kubernetes.io/pod-index=0, label statefulset.kubernetes.io/pod-name=web-0"
	for name, tt := range map[string]struct {
		options []option
		change  func(*world)
		want    []string
	}{
		"all is well":                {nil, func(*world) {}, nil},
		"the label":                  {nil, func(w *world) { unlabelled(w.Pods[0]) }, []string{identity}},
		"a wrong label":              {nil, func(w *world) { labelled(appsv1.StatefulSetPodNameLabel, "web-1")(w.Pods[0]) }, []string{identity}},
		"the label, of a broken pod": {nil, func(w *world) { unlabelled(w.Pods[0]); notReady(w.Pods[0]) }, []string{identity}},
		"the label, while others are missing": {[]option{replicas(3)}, func(w *world) { unlabelled(w.Pods[0]) },
			[]string{identity, "+2 a:1"}},
		"the label, paused":   {[]option{paused}, func(w *world) { unlabelled(w.Pods[0]) }, []string{identity}},
		"the label, OnDelete": {[]option{deletedByHand}, func(w *world) { unlabelled(w.Pods[0]) }, []string{identity}},
		"owners":              {nil, func(w *world) { w.claim(0).OwnerReferences = nil }, []string{"owners 0 [StatefulSet]"}},
		"owners, of a broken pod": {nil, func(w *world) { w.claim(0).OwnerReferences = nil; notReady(w.Pods[0]) },
			[]string{"owners 0 [StatefulSet]"}},
		"owners, paused": {[]option{paused}, func(w *world) { w.claim(0).OwnerReferences = nil }, []string{"owners 0 [StatefulSet]"}},
		"owners, OnDelete": {[]option{deletedByHand}, func(w *world) { w.claim(0).OwnerReferences = nil },
			[]string{"owners 0 [StatefulSet]"}},
		"a volume": {nil, func(w *world) { w.Pods[1].Spec.Volumes = nil }, []string{"-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, append([]option{withClaims, retention(appsv1beta1.DeleteStatefulSetClaims,
				appsv1beta1.RetainStatefulSetClaims)}, tt.options...)...)
			w.at("a:1")
			all(w, "a:1", 2)
			for _, change := range Make(w.Snapshot).ClaimOwners {
				change.Claim.OwnerReferences = change.Owners
			}
			tt.change(w)
			w.expect(tt.want...)
		})
	}
}

// TestAClaimTemplateIsAdded shows ASTS-130: a pod without the volume is outdated, and replaced by the rules
// of updates, never patched. What comes in its place has the PVC. A template that is taken away changes
// nothing.
func TestAClaimTemplateIsAdded(t *testing.T) {
	for name, tt := range map[string]struct {
		options []option
		change  func(*world)
		want    string
	}{
		"one at a time":                         {nil, func(*world) {}, "-2"},
		"maxUnavailable":                        {[]option{inParallel, maxUnavailable(2)}, func(*world) {}, "-1 -2"},
		"one is down already":                   {[]option{inParallel}, func(w *world) { notReady(w.Pods[0]) }, "-0"},
		"in place if possible, which it is not": {[]option{policy(possible)}, func(*world) {}, "-2"},
		"in place only":                         {[]option{policy(only)}, func(*world) {}, ""},
		"partition":                             {[]option{partition(2), inParallel, maxUnavailable(3)}, func(*world) {}, "-2"},
		"partition of all":                      {[]option{partition(3)}, func(*world) {}, ""},
		"paused":                                {[]option{paused}, func(*world) {}, ""},
		"OnDelete":                              {[]option{deletedByHand}, func(*world) {}, ""},
		"its hook holds it":                     {[]option{hooks}, func(w *world) { labelled("delete", "on")(w.Pods[2]) }, ""},
		"its hook let go":                       {[]option{hooks}, func(w *world) { in(pub.LifecycleStatePreparingDelete)(w.Pods[2]) }, "-2"},
		"with a new image":                      {[]option{policy(possible)}, func(w *world) { w.at("a:2") }, "-2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, tt.options...)
			w.at("a:1")
			all(w, "a:1", 3)
			withClaims(w.Set)
			tt.change(w)
			if got := w.updates(); got != tt.want {
				t.Errorf("%q, not %q: %s", got, tt.want, Make(w.Snapshot))
			}
			for _, v := range Make(w.Snapshot).Verdicts {
				if v.Patch != nil && v.Patch.String() != strings.Replace(toNormal, "Normal", "PreparingDelete", 1) {
					t.Errorf("pod %s gets %s", v.Pod.Name, v.Patch)
				}
			}
			w.Pods = w.Pods[:2] // when it is gone
			for _, creation := range Make(w.Snapshot).Create {
				volumes, _ := creation.Pod["spec"].(map[string]any)["volumes"].([]any)
				if len(creation.Claims) != 1 {
					t.Errorf("number of claims of the creation: got %d, want 1; pod %s is made with %v and %v",
						len(creation.Claims), creation.Name, creation.Claims,
						volumes)
				}
				if len(volumes) != 1 {
					t.Errorf("number of volumes: got %d, want 1; pod %s is made with %v and %v", len(volumes),
						creation.Name, creation.Claims, volumes)
				}
			}
		})
	}
	w := newWorld(t, 3, withClaims, policy(possible))
	w.at("a:1")
	all(w, "a:1", 3)
	w.Set.Spec.VolumeClaimTemplates = nil
	w.expect()
}
