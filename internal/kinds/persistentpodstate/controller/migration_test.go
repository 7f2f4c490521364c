package controller

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
)

// migrated has Advanced StatefulSets of some names and no others, since the simulation has but those of
// Kubernetes.
type migrated struct {
	onlyNative
	there map[string]bool
}

// Read implements Workloads.
func (m migrated) Read(ctx context.Context, namespace string, of persistentpodstate.Reference, live bool) (*persistentpodstate.Workload, error) {
	switch {
	case of.GroupKind != workloadkind.AdvancedStatefulSet:
		return m.onlyNative.Read(ctx, namespace, of, live)
	case m.there[of.Name]:
		return &persistentpodstate.Workload{Reference: of, UID: "advanced"}, nil
	}
	return nil, nil
}

// PPS-078 (part): a StatefulSet was migrated to the other group with its pods. What had been generated for
// the former one stayed, none was generated for the new one, and no place was remembered any more. While the
// former one is there it stays.
func TestAMigratedSetHadNoPersistentPodState(t *testing.T) {
	for name, there := range map[string]bool{"it is gone": false, "it is there": true} {
		w := pinned(t)
		native := w.g.Workloads.(onlyNative)
		w.r.Workloads, w.g.Workloads = migrated{native, map[string]bool{"web": there}}, migrated{native, map[string]bool{"web": there}}
		former := &appsv1beta1.PersistentPodState{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web",
			Annotations: map[string]string{pub.GeneratedPersistentPodState: "StatefulSet.apps.kruise.io/web"}}}
		former.Spec.TargetRef = appsv1beta1.PersistentPodStateTarget{APIVersion: "apps.kruise.io/v1beta1", Kind: ss, Name: "web"}
		former.Spec.RequiredPersistentTopology = &appsv1beta1.NodeTopologyTerm{Keys: []string{"zone"}}
		w.Store(key(pps, "web"), former)
		w.make("web", 1, 0, map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "zone"})
		w.settle()
		if there {
			if got := w.state("web").UID; got != former.UID {
				t.Errorf("%s: w.state(\"web\").UID: got %q, want %q\n%+v\n%v", name, got, former.UID, w.state("web"), w.told)
			}
			if got := w.tells("PersistentPodStateConflict"); got != 1 {
				t.Errorf("%s: w.tells(\"PersistentPodStateConflict\"): got %d, want 1\n%+v\n%v", name, got, w.state("web"), w.told)
			}
			continue
		}
		state := w.state("web")
		if !metav1.IsControlledBy(state, w.set("web")) {
			t.Errorf("%s: metav1.IsControlledBy(state, w.set(\"web\")): got false, want true\n%+v\n%v", name, state, w.told)
		}
		if state.Spec.TargetRef.APIVersion != "apps/v1" {
			t.Errorf("%s: state.Spec.TargetRef.APIVersion: got %q, want %q\n%+v\n%v", name, state.Spec.TargetRef.APIVersion, "apps/v1", state,
				w.told)
		}
		if got := w.places("web"); got != "web-0 a z1" {
			t.Errorf("%s: w.places(\"web\"): got %q, want %q\n%+v\n%v", name, got, "web-0 a z1", state, w.told)
		}
	}
}
