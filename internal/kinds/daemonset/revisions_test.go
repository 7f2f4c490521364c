package daemonset

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// TestANewRevisionHasItsNameAndStatus shows ADS-060 and ADS-066: what a revision holds and is called, and
// what the status says of it.
func TestANewRevisionHasItsNameAndStatus(t *testing.T) {
	w := newWorld(t, 1, func(set *appsv1beta1.DaemonSet) {
		set.Labels, set.Annotations = map[string]string{"of": "the set"}, map[string]string{"team": "a"}
	})
	plan := w.plan()
	got := plan.NewRevision
	hash := revision.Hash(got.Data.Raw, 0)
	want := metav1.ObjectMeta{Namespace: "ops", Name: "agent-" + hash, Annotations: map[string]string{"team": "a"},
		Labels:          map[string]string{"app": "agent", "controller-revision-hash": hash},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.Set, appsv1beta1.GroupVersion.WithKind("DaemonSet"))}}
	if diff := cmp.Diff(want, got.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	data := `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"agent"}},` +
		`"spec":{"containers":[{"image":"a:1","name":"main","resources":{}}]}}}}`
	if string(got.Data.Raw) != data {
		t.Errorf("data: got %q, want %q", string(got.Data.Raw), data)
	}
	if got.Revision != 1 {
		t.Errorf("revision: got %d, want 1", got.Revision)
	}
	if plan.Status.UpdateRevision != hash {
		t.Errorf("the status says %s", plan.Status.UpdateRevision)
	}
	w.at("a:1")
	w.Revisions[0].Revision = 7
	template(w.Set, "a:2")
	if plan := w.plan(); plan.NewRevision == nil {
		t.Errorf("new revision: got nil, want a value\n%v", plan)
	} else if plan.NewRevision.Revision != 8 {
		t.Errorf("revision of the new revision: got %d, want 8\n%v", plan.NewRevision.Revision, plan)
	}
}

// TestWhatIsTheSameTemplate shows ADS-061 (part) and ADS-062 (part): a stored revision that means the same as
// the template is its revision, whoever wrote it, and nothing is rolled out. It is raised above all others if
// it is not the newest.
func TestWhatIsTheSameTemplate(t *testing.T) {
	for name, data := range map[string]string{
		"ours": `{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"agent"}},
			"spec":{"containers":[{"image":"a:1","name":"main"}]}}}}`,
		"another order of keys": `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"a:1"}]},"$patch":"replace",
			"metadata":{"labels":{"app":"agent"}}}}}`,
		"as the reference writes it": `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"agent"}},
			"spec":{"containers":[{"image":"a:1","name":"main","resources":{}}]}}}}`,
		"as the native kind completes it": `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,
			"labels":{"app":"agent"}},"spec":{"dnsPolicy":"ClusterFirst","restartPolicy":"Always","securityContext":{},
			"containers":[{"image":"a:1","name":"main","resources":{}}]}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.at("a:1")
			stored := w.Revisions[0]
			stored.Data.Raw, stored.Name = []byte(data), "agent-native"
			stored.Labels = map[string]string{"app": "agent", "controller-revision-hash": "native"}
			w.revisions["a:1"] = stored.Name
			w.on("n1 n2", "a:1")
			if plan := w.does(""); plan.NewRevision != nil {
				t.Errorf("new revision: got %v, want nil\n%v", plan.NewRevision, plan)
			} else if plan.Renumber != nil {
				t.Errorf("renumbered revision: got %v, want nil\n%v", plan.Renumber, plan)
			} else if plan.Status.UpdateRevision != "native" {
				t.Errorf("update revision: got %q, want %q\n%v", plan.Status.UpdateRevision, "native", plan)
			} else if plan.Status.UpdatedNumberScheduled != 2 {
				t.Errorf("updated pods: got %d, want 2\n%v", plan.Status.UpdatedNumberScheduled, plan)
			}
			w.at("a:2")
			w.Revisions[1].Revision = 9
			template(w.Set, "a:1")
			plan := w.does("")
			if plan.Renumber != stored {
				t.Errorf("renumbered revision: got %v, want %v\n%v", plan.Renumber, stored, plan)
			}
			if plan.NewNumber != 10 {
				t.Errorf("new number: got %d, want 10\n%v", plan.NewNumber, plan)
			}
		})
	}
	w := newWorld(t, 1)
	w.at("a:1")
	w.Revisions[0].Data.Raw = bytes.Replace(w.Revisions[0].Data.Raw, []byte(`"spec":{"containers"`),
		[]byte(`"spec":{"dnsPolicy":"ClusterFirst","restartPolicy":"Always","securityContext":{},"containers"`), 1)
	template(w.Set, "a:2")
	if plan := w.plan(); !bytes.Contains(plan.NewRevision.Data.Raw, []byte("ClusterFirst")) { // as the newest one is
		t.Errorf("new revision: got %s, want the defaults of the newest one in it", plan.NewRevision.Data.Raw)
	}
	template(w.Set, "a:1", `"dnsPolicy":"Default"`)
	if plan := w.plan(); plan.NewRevision == nil {
		t.Error("another policy is the same template")
	}
}

// TestOfEqualRevisionsTheHighestStays shows ADS-062 and ADS-D7: of several revisions that equal the template
// the one of the highest number stays. Pods of the others are relabelled, and no other pods; then the others
// go.
func TestOfEqualRevisionsTheHighestStays(t *testing.T) {
	w := newWorld(t, 4, onDelete)
	w.at("a:1")
	w.at("a:2")
	twin := w.Revisions[1].DeepCopy()
	twin.Name, twin.UID, twin.Labels["controller-revision-hash"] = "agent-twin", types.UID("twin"), "twin"
	twin.Revision = w.Revisions[1].Revision + 1
	w.Revisions = append(w.Revisions, twin)
	w.pod("n1", "a:1")
	w.on("n2 n3", "a:2")
	w.pod("n4", "a:2").Labels[pub.ControllerRevisionHash] = "twin"
	plan := w.expect("patch n2", "patch n3")
	if plan.Status.UpdateRevision != "twin" {
		t.Errorf("update revision: got %q, want %q\n%+v\n%v\n%s", plan.Status.UpdateRevision, "twin", plan.Status,
			plan.History,
			plan)
	}
	if plan.Status.UpdatedNumberScheduled != 3 {
		t.Errorf("updated pods: got %d, want 3\n%+v\n%v\n%s", plan.Status.UpdatedNumberScheduled, plan.Status,
			plan.History, plan)
	}
	if len(plan.History) != 0 {
		t.Errorf("number of revisions that go: got %d, want 0\n%+v\n%v\n%s", len(plan.History), plan.Status,
			plan.History, plan)
	}
	for _, v := range plan.Verdicts[1:3] {
		if diff := cmp.Diff("label controller-revision-hash=twin", v.Patch.String()); diff != "" {
			t.Errorf("patch (-want +got):\n%s", diff)
		}
		v.Pod.Labels[pub.ControllerRevisionHash] = "twin"
	}
	if plan = w.does(""); len(plan.History) != 1 {
		t.Errorf("number of revisions that go: got %d, want 1; history %v", len(plan.History), plan.History)
	} else if plan.History[0].Name != w.revisions["a:2"] {
		t.Errorf("name of the first revision that goes: got %q, want %q; history %v", plan.History[0].Name,
			w.revisions["a:2"], plan.History)
	}
	w.Revisions[1].OwnerReferences = nil // nobody's
	if plan = w.does(""); len(plan.History) != 0 {
		t.Errorf("number of revisions that go: got %d, want 0; history %v", len(plan.History), plan.History)
	} else if len(plan.AdoptRevisions) != 1 {
		t.Errorf("number of adopted revisions: got %d, want 1; history %v", len(plan.AdoptRevisions), plan.History)
	}
}

// TestTheHashDecides shows ADS-063 and ADS-D6: what generation annotation and label say does not make a pod
// new, nor old.
func TestTheHashDecides(t *testing.T) {
	w := newWorld(t, 2, annotated(pub.DaemonSetTemplateGeneration, "4"), maxUnavailable(2))
	w.at("a:1")
	w.on("n1", "a:1")
	w.Pods[0].Labels[pub.PodTemplateGeneration] = "4"
	w.at("a:2")
	w.pod("n2", "a:2").Labels[pub.PodTemplateGeneration] = "3"
	w.does("-n1")
	w.Pods = nil
	for _, pod := range created(t, w.plan()) {
		if pod.Labels[pub.PodTemplateGeneration] != "4" {
			t.Errorf("a new pod has labels %v", pod.Labels)
		}
	}
}

// TestRevisionsWithoutTheirLabel shows ADS-061 (part): a revision by the name, if it has no label: pods that
// carry that name are its pods.
func TestRevisionsWithoutTheirLabel(t *testing.T) {
	w := newWorld(t, 1)
	w.at("a:1")
	w.pod("n1", "a:1").Labels[pub.ControllerRevisionHash] = w.revisions["a:1"]
	delete(w.Revisions[0].Labels, "controller-revision-hash")
	plan := w.does("")
	if plan.Status.UpdatedNumberScheduled != 1 {
		t.Errorf("updated pods: got %d, want 1\n%v", plan.Status.UpdatedNumberScheduled, plan)
	}
	if plan.NewRevision != nil {
		t.Errorf("new revision: got %v, want nil\n%v", plan.NewRevision, plan)
	}
}

// TestOldRevisionsThatNoPodCarriesGo shows ADS-065: the oldest revisions go that no pod carries, beyond the
// limit; the current one and those of pods stay.
func TestOldRevisionsThatNoPodCarriesGo(t *testing.T) {
	images := []string{"a:1", "a:2", "a:3", "a:4", "a:5"}
	for name, tt := range map[string]struct {
		limit   int32
		carried string
		want    string
	}{
		"none are kept":     {0, "", "a:1 a:2 a:3 a:4"},
		"two are":           {2, "", "a:1 a:2"},
		"one is carried":    {2, "a:1", "a:2"},
		"carried, and none": {0, "a:2", "a:1 a:3 a:4"},
		"all are":           {4, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, onDelete)
			w.Set.Spec.RevisionHistoryLimit = &tt.limit
			names := map[string]string{}
			for _, image := range images {
				w.at(image)
				names[w.revisions[image]] = image
			}
			w.on("n1", "a:5")
			if tt.carried != "" {
				w.pod("n1", tt.carried, terminating)
			}
			var got []string
			for _, stored := range w.plan().History {
				got = append(got, names[stored.Name])
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%q, not %q", got, tt.want)
			}
		})
	}
}

// TestACollisionChoosesAnotherName shows ADS-064 (part): a revision of that name with other content makes
// the set raise its own collision count and choose another name.
func TestACollisionChoosesAnotherName(t *testing.T) {
	w := newWorld(t, 1)
	name := w.plan().NewRevision.Name
	other := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: name, UID: "other", Labels: map[string]string{
		"app": "agent"}, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.Set, appsv1beta1.GroupVersion.WithKind(kind))}}}
	other.Data.Raw, other.Revision = []byte(`{"spec":{"template":{"$patch":"replace","spec":{"containers":[]}}}}`), 1
	w.Revisions = append(w.Revisions, other)
	plan := w.plan()
	if plan.NewRevision == nil {
		t.Errorf("new revision: got nil, want a value; %+v, collisions %v", plan.NewRevision,
			plan.Status.CollisionCount)
	} else if plan.NewRevision.Name == name {
		t.Errorf("name of the new revision: got %q, want another value; %+v, collisions %v", plan.NewRevision.Name,
			plan.NewRevision,
			plan.Status.CollisionCount)
	} else if plan.Status.CollisionCount == nil {
		t.Errorf("collision count: got nil, want a value; %+v, collisions %v", plan.NewRevision,
			plan.Status.CollisionCount)
	} else if *plan.Status.CollisionCount != 1 {
		t.Errorf("collision count: got %d, want 1; %+v, collisions %v", *plan.Status.CollisionCount,
			plan.NewRevision,
			plan.Status.CollisionCount)
	}
}

// TestADaemonSetThatComesBackFromKubernetesKeepsItsPods shows ADS-061 (part) and ADS-062 (part): a set that
// was ours, became one of Kubernetes, which stored the same template with all defaults, and comes back, has
// both revisions. The newest one stays, whoever wrote it; pods of the other one are relabelled, and none is
// made anew.
func TestADaemonSetThatComesBackFromKubernetesKeepsItsPods(t *testing.T) {
	for name, tt := range map[string]struct {
		number int64
		update string
		does   []string
	}{
		"the revision of Kubernetes is the newest": {2, "native", []string{"patch n3"}},
		"ours is the newest":                       {0, "", []string{"patch n1", "patch n2"}},
	} {
		for strategy, option := range map[string]option{"standard": maxUnavailable(3), "in place": inPlace, "surge": maxSurge(3)} {
			t.Run(name+", "+strategy, func(t *testing.T) {
				w := newWorld(t, 3, option)
				w.at("a:1")
				native := w.Revisions[0].DeepCopy()
				native.Name, native.UID, native.Revision = "agent-native", "native", tt.number
				native.Labels["controller-revision-hash"] = "native"
				native.Data.Raw = []byte(`{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"agent"}},
					"spec":{"dnsPolicy":"ClusterFirst","restartPolicy":"Always","securityContext":{},"containers":[{"image":"a:1","name":"main",
					"resources":{}}]}}}}`)
				w.Revisions = append(w.Revisions, native)
				w.on("n1 n2 n3", "a:1")
				w.Pods[0].Labels[pub.ControllerRevisionHash], w.Pods[1].Labels[pub.ControllerRevisionHash] = "native", "native"
				plan := w.expect(tt.does...)
				update := tt.update
				if update == "" {
					update = w.hash("a:1")
				}
				if plan.Status.UpdateRevision != update {
					t.Errorf("update revision: got %q, want %q\n%+v\n%s", plan.Status.UpdateRevision, update, plan.Status,
						plan)
				} else if plan.Renumber != nil {
					t.Errorf("renumbered revision: got %v, want nil\n%+v\n%s", plan.Renumber, plan.Status, plan)
				} else if plan.NewRevision != nil {
					t.Errorf("new revision: got %v, want nil\n%+v\n%s", plan.NewRevision, plan.Status, plan)
				} else if plan.Status.UpdatedNumberScheduled != 3 {
					t.Errorf("updated pods: got %d, want 3\n%+v\n%s", plan.Status.UpdatedNumberScheduled, plan.Status, plan)
				}
				for _, pod := range w.Pods {
					pod.Labels[pub.ControllerRevisionHash] = update
				}
				if plan = w.does(""); len(plan.History) != 1 {
					t.Errorf("the other one stays: %v", plan.History)
				}
			})
		}
	}
}
