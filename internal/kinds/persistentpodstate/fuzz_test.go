package persistentpodstate

import (
	"encoding/json"
	"maps"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzBind: what a pod gets of its remembered place applies and makes a pod. It keeps all that the pod had,
// except for the labels of nodes that are remembered. Each weight is one that an API server accepts, every
// value is a remembered one, no annotation of this project is copied, and a second time changes nothing.
func FuzzBind(f *testing.F) {
	const state = `{"metadata":{"name":"places","annotations":{"` + pub.InjectPersistentPodAnnotations + `":"true"}},"spec":{"requiredPersistentTopology":{"keys":["host"]},` +
		`"preferredPersistentTopology":[{"weight":100,"preference":{"keys":["zone","example.com/rack"]}}],"persistentPodAnnotations":[{"key":"ip"}]},` +
		`"status":{"podStates":{"web-0":{"nodeName":"n","nodeTopologyLabels":{"host":"a","zone":"z","example.com/rack":"r"},"annotations":{"ip":"10.0.0.1"}}}}}`
	const pod = `{"metadata":{"name":"web-0","annotations":{"a":"b"}},"spec":{"nodeSelector":{"host":"b","disk":"ssd"},"affinity":{"nodeAffinity":{` +
		`"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":5,"preference":{"matchExpressions":[{"key":"zone","operator":"Exists"}]}}]}},"containers":[{"name":"app"}]}}`
	f.Add(state, pod, []byte{}, []byte{})
	f.Add(state, pod, []byte("\x02\x01\x00\x01\x03"), []byte("\x02\x00\x00\x01\x02\x00"))
	f.Add(state, `{"metadata":{"name":"web-0"},"spec":{}}`, []byte("other labels"), []byte{})
	f.Fuzz(func(t *testing.T, stateText, podText string, stateChanges, podChanges []byte) {
		stateText = fuzzing.Edit(stateText, stateChanges, "keys", "weight", "preference", "nodeTopologyLabels", "annotations", "zone", "host",
			"example.com/rack", "a~/b", "web-0", pub.InjectedPersistentPodState)
		podText = fuzzing.Edit(podText, podChanges, "nodeSelector", "affinity", "nodeAffinity", "annotations", "zone", "host",
			"preferredDuringSchedulingIgnoredDuringExecution", "matchExpressions", "weight")
		state, given := &appsv1beta1.PersistentPodState{}, &corev1.Pod{}
		if json.Unmarshal([]byte(stateText), state) != nil || json.Unmarshal([]byte(podText), given) != nil {
			return
		}
		podText = fuzzing.JSON(given) // as an API server writes it
		made := bound(t, state, podText)
		after := &corev1.Pod{}
		if err := json.Unmarshal([]byte(made), after); err != nil {
			t.Fatalf("%s is no pod: %v", made, err)
		}
		if again := bound(t, state, made); !jsonpatch.Equal([]byte(again), []byte(made)) {
			t.Errorf("a second time, %s became %s", made, again)
		}

		entry := state.Status.PodStates[given.Name]
		must := Must(state, given.Name)
		for key, value := range after.Spec.NodeSelector {
			if had, has := given.Spec.NodeSelector[key]; (!has || had != value) && (must[key] != value || entry.NodeTopologyLabels[key] != value) {
				t.Errorf("%s with %s got selector %s=%s", podText, stateText, key, value)
			}
		}
		for key, value := range must {
			if after.Spec.NodeSelector[key] != value {
				t.Errorf("%s with %s got no selector %s=%s", podText, stateText, key, value)
			}
		}
		for key := range given.Spec.NodeSelector {
			if _, kept := after.Spec.NodeSelector[key]; !kept {
				t.Errorf("%s with %s lost selector %s", podText, stateText, key)
			}
		}
		for key, value := range after.Annotations {
			if had, has := given.Annotations[key]; (!has || had != value) && key != pub.InjectedPersistentPodState &&
				(has || own(key) || entry.Annotations[key] != value) {
				t.Errorf("%s with %s got annotation %s=%s", podText, stateText, key, value)
			}
		}

		terms := func(pod *corev1.Pod) []corev1.PreferredSchedulingTerm {
			if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
				return nil
			}
			return pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		}
		had, got := terms(given), terms(after)
		if len(got) < len(had) || len(had) > 0 && !equality.Semantic.DeepEqual(had, got[:len(had)]) {
			t.Fatalf("%s with %s has the preferences %s", podText, stateText, fuzzing.JSON(got))
		}
		for _, term := range got[len(had):] {
			if term.Weight < leastWeight || term.Weight > mostWeight || len(term.Preference.MatchExpressions) == 0 {
				t.Errorf("%s with %s got the preference %s", podText, stateText, fuzzing.JSON(term))
			}
			for _, e := range term.Preference.MatchExpressions {
				if value, ok := entry.NodeTopologyLabels[e.Key]; !ok || e.Operator != corev1.NodeSelectorOpIn || len(e.Values) != 1 || e.Values[0] != value {
					t.Errorf("%s with %s got the preference %s", podText, stateText, fuzzing.JSON(term))
				}
			}
		}

		// Nothing else of the pod changes.
		for _, pod := range []*corev1.Pod{given, after} {
			pod.Annotations, pod.Spec.NodeSelector = nil, nil
			if pod.Spec.Affinity != nil {
				pod.Spec.Affinity.NodeAffinity = nil
			}
			if equality.Semantic.DeepEqual(pod.Spec.Affinity, &corev1.Affinity{}) {
				pod.Spec.Affinity = nil
			}
		}
		if a, b := fuzzing.JSON(given), fuzzing.JSON(after); a != b {
			t.Errorf("%s became %s", a, b)
		}
	})
}

// FuzzGenerate: what annotations of a workload ask for is made once and admitted, or refused with a reason;
// it is the same as long as they are, and goes when they do.
func FuzzGenerate(f *testing.F) {
	f.Add("true", "kubernetes.io/hostname, zone", "a/b", "ip,", "WhenScaled")
	f.Add("true", "", ",", "", "")
	f.Add("true", "zone,zone", "", "not a key!", "x")
	f.Add("false", "zone", "", "", "")
	f.Fuzz(func(t *testing.T, auto, required, preferred, kept, policy string) {
		w := &Workload{APIVersion: "apps/v1", UID: "u", Annotations: map[string]string{pub.AutoGeneratePersistentPodState: auto, pub.RequiredPersistentTopology: required,
			pub.PreferredPersistentTopology: preferred, pub.PersistentPodAnnotations: kept, pub.PersistentPodStateRetentionPolicy: policy}}
		w.Group, w.Kind, w.Name = "apps", "StatefulSet", "web"
		g := Generate(&Asked{Workload: w})
		if g.Update != nil || g.Delete || g.Conflict != "" || g.Create != nil && g.Invalid != "" || g.Create != nil && auto != "true" || len(g.Invalid) > 4<<10+len(policy)+len(kept)+len(required)+len(preferred) {
			t.Errorf("%q asks for %+v", w.Annotations, g)
		}
		if g.Create == nil {
			return
		}
		if errs := Validate(g.Create, nil, Environment{}); len(errs) > 0 {
			t.Errorf("%q asks for %s, which is refused: %v", w.Annotations, fuzzing.JSON(g.Create), errs)
		}
		if same := Generate(&Asked{Workload: w, Object: g.Create}); !equality.Semantic.DeepEqual(same, Generation{}) {
			t.Errorf("%q asks for %+v of what it made", w.Annotations, same)
		}
		w.Annotations = maps.Clone(w.Annotations)
		w.Annotations[pub.AutoGeneratePersistentPodState] = "no"
		if gone := Generate(&Asked{Workload: w, Object: g.Create}); !gone.Delete {
			t.Errorf("%q asks for %+v of what it made", w.Annotations, gone)
		}
	})
}
