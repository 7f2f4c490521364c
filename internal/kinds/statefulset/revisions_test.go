package statefulset

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// TestANewRevisionHasItsNameAndLabelsPods shows what a revision is called and has (ASTS-081), and that new
// pods and updated ones are labelled with its whole name (ASTS-087).
func TestANewRevisionHasItsNameAndLabelsPods(t *testing.T) {
	w := newWorld(t, 2, policy(possible), inParallel, func(set *appsv1beta1.StatefulSet) {
		set.Labels, set.Annotations = map[string]string{"of": "the set"}, map[string]string{"team": "a"}
	})
	got := Make(w.Snapshot).NewRevision
	hash := revision.Hash(got.Data.Raw, 0)
	want := metav1.ObjectMeta{Namespace: "shop", Name: "web-" + hash, Annotations: map[string]string{"team": "a"},
		Labels:          map[string]string{"app": "web", "controller.kubernetes.io/hash": hash},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.Set, appsv1beta1.GroupVersion.WithKind("StatefulSet"))}}
	if diff := cmp.Diff(want, got.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	w.at("a:1")
	w.Set.Annotations = map[string]string{"team": "b"} // the copy is that of its creation
	if plan := Make(w.Snapshot); plan.NewRevision != nil {
		t.Errorf("new revision: got %v, want nil\n%v", plan.NewRevision, plan)
	} else if plan.Renumber != nil {
		t.Errorf("renumbered revision: got %v, want nil\n%v", plan.Renumber, plan)
	} else if w.Revisions[0].Annotations["team"] != "a" {
		t.Errorf("annotation team of the first revision: got %q, want %q\n%v", w.Revisions[0].Annotations["team"],
			"a", plan)
	}
	w.pod(0, "a:1")
	w.at("a:2")
	plan := Make(w.Snapshot)
	metadata, _ := plan.Create[0].Pod["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	if labels["controller-revision-hash"] != w.revisions["a:2"] {
		t.Errorf(`label controller-revision-hash: got %v, want %q; a new pod has labels %v`,
			labels["controller-revision-hash"],
			w.revisions["a:2"], labels)
	}
	if !strings.HasPrefix(w.revisions["a:2"], "web-") {
		t.Errorf(`name of the revision of a:2: got %q, want it to begin with %q; a new pod has labels %v`,
			w.revisions["a:2"], "web-", labels)
	}
	w.pod(1, "a:2")
	update := Make(w.Snapshot).Verdicts[0].Update
	if diff := cmp.Diff(map[string]string{"controller-revision-hash": w.revisions["a:2"]}, update.RevisionLabels); diff != "" {
		t.Errorf("revision labels of the update (-want +got):\n%s", diff)
	}
}

// TestRevisionsHoldTheTemplateAlone: claim templates are not versioned, also not where a revision becomes the
// present one again (ASTS-080).
func TestRevisionsHoldTheTemplateAlone(t *testing.T) {
	w := newWorld(t, 1, withClaims)
	for _, image := range []string{"a:1", "a:2", "a:1"} {
		w.at(image)
	}
	if plan := Make(w.Snapshot); plan.Renumber != w.Revisions[0] {
		t.Errorf("renumbered revision: got %v, want %v; %v, with %v: %s", plan.Renumber, w.Revisions[0],
			plan.Renumber, plan.Remembered,
			w.Revisions[0].Data.Raw)
	} else if len(plan.Remembered) != 0 {
		t.Errorf("number remembered: got %d, want 0; %v, with %v: %s", len(plan.Remembered), plan.Renumber,
			plan.Remembered,
			w.Revisions[0].Data.Raw)
	} else if len(w.Revisions[0].Annotations) != 0 {
		t.Errorf("number of annotations of the first revision: got %d, want 0; %v, with %v: %s",
			len(w.Revisions[0].Annotations), plan.Renumber,
			plan.Remembered, w.Revisions[0].Data.Raw)
	} else if bytes.Contains(w.Revisions[0].Data.Raw, []byte("1Gi")) {
		t.Errorf(`the revision has the size of the claim: got true, want false; %v, with %v: %s`, plan.Renumber,
			plan.Remembered, w.Revisions[0].Data.Raw)
	} else if !bytes.Contains(w.Revisions[0].Data.Raw, []byte(`"$patch":"replace"`)) {
		t.Errorf("bytes.Contains(w.Revisions[0].Data.Raw, []byte(`\"$patch\":\"replace\"`)): got false, want true; %v, with %v: %s",
			plan.Renumber, plan.Remembered, w.Revisions[0].Data.Raw)
	}
}

// TestTheUpdateRevisionGetsItsNumber shows ASTS-082: which revision is the update revision, and which number
// it gets.
func TestTheUpdateRevisionGetsItsNumber(t *testing.T) {
	for name, tt := range map[string]struct {
		stored  []string
		numbers []int64
		image   string
		// created and raised are the number of a new revision, and that of one that becomes the update
		// revision again.
		created, raised int64
	}{
		"the first":              {nil, nil, "a:1", 1, 0},
		"the newest":             {[]string{"a:1", "a:2"}, nil, "a:2", 0, 0},
		"an older one":           {[]string{"a:1", "a:2", "a:3"}, nil, "a:1", 0, 4},
		"a new one":              {[]string{"a:1", "a:2"}, nil, "a:3", 3, 0},
		"a new one after a gap":  {[]string{"a:1", "a:2"}, []int64{9, 4}, "a:3", 10, 0},
		"an older one by number": {[]string{"a:1", "a:2"}, []int64{9, 4}, "a:2", 0, 10},
		"the newest by number":   {[]string{"a:1", "a:2"}, []int64{9, 4}, "a:1", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			for _, image := range tt.stored {
				w.at(image)
			}
			for i, number := range tt.numbers {
				w.Revisions[i].Revision = number
			}
			setTemplate(w.Set, tt.image)
			plan := Make(w.Snapshot)
			want := w.revisions[tt.image]
			switch r := plan.NewRevision; {
			case (r != nil) != (tt.created > 0) || r != nil && r.Revision != tt.created:
				t.Errorf("created: %+v", r)
			case r != nil:
				want = r.Name
			}
			if r := plan.Renumber; (r != nil) != (tt.raised > 0) {
				t.Errorf("raised: got %+v, want one: %t", r, tt.raised > 0)
			} else if r != nil && r.Name != want {
				t.Errorf("raised: got %s, want %s", r.Name, want)
			} else if r != nil && plan.NewNumber != tt.raised {
				t.Errorf("raised to %d, want %d: %+v", plan.NewNumber, tt.raised, r)
			}
			if plan.Status.UpdateRevision != want {
				t.Errorf("update revision %s, not %s", plan.Status.UpdateRevision, want)
			}
		})
	}
}

// TestAStoredRevisionThatSaysTheSameIsUsed shows ASTS-083, with TestPodsAreGivenUpBeforeTheirRevision: a
// stored revision that says the same as the template in other words is its revision, and causes no rollout,
// whoever wrote it. Pods of another one that says the same only get another label, under every policy.
func TestAStoredRevisionThatSaysTheSameIsUsed(t *testing.T) {
	for name, data := range map[string]string{
		"ours": `{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},
			"spec":{"containers":[{"image":"a:1","name":"main"}]}}}}`,
		"another order of keys": `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"a:1"}]},"metadata":{"labels":{"app":"web"}},
			"$patch":"replace"}}}`,
		"as the native kind and the reference write it": `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,
			"labels":{"app":"web"}},"spec":{"containers":[{"image":"a:1","name":"main","resources":{}}]}}}}`,
		"empty fields": `{"spec":{"template":{"$patch":"replace","metadata":{"annotations":{},"labels":{"app":"web"}},
			"spec":{"volumes":[],"nodeSelector":null,"securityContext":null,
			"containers":[{"image":"a:1","name":"main","env":[],"args":null}]}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.at("a:1")
			stored := w.Revisions[0]
			stored.Data.Raw, stored.Name = []byte(data), "web-native"
			w.revisions["a:1"], w.Set.Status.CurrentRevision = stored.Name, stored.Name
			all(w, "a:1", 2)
			w.expect()
			if plan := Make(w.Snapshot); plan.NewRevision != nil {
				t.Errorf("new revision: got %v, want nil\n%v", plan.NewRevision, plan)
			} else if plan.Renumber != nil {
				t.Errorf("renumbered revision: got %v, want nil\n%v", plan.Renumber, plan)
			} else if plan.Status.UpdateRevision != stored.Name {
				t.Errorf("update revision: got %q, want %q\n%v", plan.Status.UpdateRevision, stored.Name, plan)
			}
			// The native set is deleted without what it owns.
			w.Orphans, w.Pods, stored.OwnerReferences, w.Set.Status = w.Pods, nil, nil, appsv1beta1.StatefulSetStatus{}
			for _, pod := range w.Orphans {
				pod.OwnerReferences = nil
			}
			w.expect("adopt 0", "adopt 1")
			if plan := Make(w.Snapshot); plan.NewRevision != nil {
				t.Errorf("new revision: got %v, want nil\n%v", plan.NewRevision, plan)
			} else if len(plan.AdoptRevisions) != 1 {
				t.Errorf("number of adopted revisions: got %d, want 1\n%v", len(plan.AdoptRevisions), plan)
			}
		})
		for _, policy := range []option{policy(appsv1beta1.ReCreateStatefulSetPodUpdatePolicy), policy(possible), policy(only)} {
			w := newWorld(t, 2, policy)
			w.at("a:1")
			twin := w.Revisions[0].DeepCopy()
			twin.Name, twin.UID, twin.Revision, twin.Data.Raw = "web-native", "native", 0, []byte(data)
			w.Revisions, w.revisions["twin"] = append(w.Revisions, twin), twin.Name
			w.pod(0, "twin")
			w.pod(1, "twin")
			w.expect("~0", "~1")
			for _, v := range Make(w.Snapshot).Verdicts {
				if v.Update == nil {
					t.Errorf("%s: update: got nil, want a value; pod %s is disturbed: %+v", name, v.Pod.Name, v)
				} else if !v.Update.Change.Quiet() {
					t.Errorf("%s: the change is quiet: got false, want true; pod %s is disturbed: %+v", name, v.Pod.Name, v)
				}
			}
		}
	}
}

// TestAnotherRevisionIsAChange: what differs in earnest is no equal revision.
func TestAnotherRevisionIsAChange(t *testing.T) {
	w := newWorld(t, 2)
	w.at("a:1")
	w.Revisions[0].Data.Raw = bytes.Replace(w.Revisions[0].Data.Raw, []byte("a:1"), []byte("a:0"), 1)
	if Make(w.Snapshot).NewRevision == nil {
		t.Error("another image is no change")
	}
}

// TestARevisionThatIsGone shows ASTS-163: nobody knows what differs from a revision that does not exist any
// more, so that its pods are not updated in place.
func TestARevisionThatIsGone(t *testing.T) {
	for name, tt := range map[string]struct {
		policy appsv1beta1.StatefulSetPodUpdatePolicy
		label  string
		want   []string
	}{
		"it is there":              {possible, "a:1", []string{"~0"}},
		"it is gone":               {possible, "", []string{"-0"}},
		"in place only":            {only, "", nil},
		"in place only, and there": {only, "a:1", []string{"~0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, policy(tt.policy))
			w.at("a:1")
			w.at("a:2")
			w.pod(0, "a:1")
			if w.Pods[0].Labels[pub.ControllerRevisionHash] = w.revisions[tt.label]; tt.label == "" {
				w.Pods[0].Labels[pub.ControllerRevisionHash] = "web-gone"
			}
			w.expect(tt.want...)
			if plan := Make(w.Snapshot); (plan.UpdateError != "") != (tt.want == nil) {
				t.Errorf("an error of the update is told: got %t, want %t\n%q", plan.UpdateError != "", tt.want == nil,
					plan.UpdateError)
			}
		})
	}
}

// TestTheStyleOfLabels shows ASTS-111: the last piece of a label decides whether a pod is at the update
// revision, for the revision of new pods and for the order, and a pod that prepares for its update is.
func TestTheStyleOfLabels(t *testing.T) {
	bare := func(pod *corev1.Pod) {
		pod.Labels[pub.ControllerRevisionHash] = revision.ShortHash(pod.Labels[pub.ControllerRevisionHash])
	}
	for name, tt := range map[string]struct {
		image  string
		states []state
		// made is the image of a pod that is made beside, and updated what is updated if nothing is missing.
		made, updated string
	}{
		"the whole name":           {"a:2", nil, "a:1", ""},
		"the hash alone":           {"a:2", []state{bare}, "a:1", ""},
		"the hash of another":      {"a:1", []state{bare}, "a:2", "~1"},
		"another":                  {"a:1", nil, "a:2", "~1"},
		"one that prepares for it": {"a:1", []state{in(pub.LifecycleStatePreparingUpdate), labelled("update", "on")}, "a:1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, inParallel, unordered, partition(1), policy(possible), func(set *appsv1beta1.StatefulSet) {
				hooks(set)
				set.Spec.Lifecycle.PreDelete = nil
			})
			w.at("a:1")
			w.at("a:2")
			w.pod(0, tt.image, tt.states...)
			if plan := Make(w.Snapshot); len(plan.Create) != 1 {
				t.Errorf("number created: got %d, want 1; beside it %v is made", len(plan.Create), plan.Create)
			} else if plan.Create[0].Revision != w.revisions[tt.made] {
				t.Errorf("revision of the first created pod: got %q, want %q; beside it %v is made",
					plan.Create[0].Revision, w.revisions[tt.made],
					plan.Create)
			}
			w.pod(1, "a:1") // at most one of the two is to be updated
			if got := w.updates(); got != tt.updated {
				t.Errorf("%q is updated", got)
			}
		})
	}
}

// updates are the pods that a plan updates in place, or deletes.
func (w *world) updates() string {
	w.t.Helper()
	var found []string
	for _, word := range w.does() {
		if word[0] == '~' || word[0] == '-' {
			found = append(found, word)
		}
	}
	return strings.Join(found, " ")
}

// TestHistoryKeepsWhatOrphansCarry shows that the revision of pods which are about to be adopted is not
// deleted before: these could not be updated in place any more (ASTS-086 (part)).
func TestHistoryKeepsWhatOrphansCarry(t *testing.T) {
	for name, states := range map[string][]state{"orphans": {orphaned}, "one that goes": {terminating}, "one that has ended": {failed}} {
		t.Run(name, func(t *testing.T) {
			none := int32(0)
			w := newWorld(t, 1, func(set *appsv1beta1.StatefulSet) { set.Spec.RevisionHistoryLimit = &none })
			w.at("a:0")
			w.at("a:1")
			w.at("a:2")
			w.Set.Status.CurrentRevision = ""
			w.pod(0, "a:0", states...)
			if history := Make(w.Snapshot).History; len(history) != 1 {
				t.Errorf("number of revisions of the history: got %d, want 1; %d are deleted of %v", len(history),
					len(history), w.revisions)
			} else if history[0].Name != w.revisions["a:1"] {
				t.Errorf("name of the first revision of the history: got %q, want %q; %d are deleted of %v",
					history[0].Name, w.revisions["a:1"], len(history), w.revisions)
			}
		})
	}
}
