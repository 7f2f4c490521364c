package controller

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatchapply "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/jsonfields"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// nativeManifest has what a manifest of the native kind can have.
const nativeManifest = `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agent","namespace":"default"},"spec":{
	"minReadySeconds":0,"revisionHistoryLimit":5,"selector":{"matchLabels":{"app":"agent"}},
	"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1,"maxSurge":0}},
	"template":{"metadata":{"labels":{"app":"agent"}},"spec":{"containers":[{"name":"agent","image":"agent:1"}]}}}}`

func decodeStrictly(text string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// TestAManifestOfTheNativeKind shows ADS-002, with the validation of manifests: each field of the native kind
// is one of ours; a manifest with another apiVersion is complete, and is one of a rolling update of one node
// at a time, whose pods tolerate what those of the native kind do.
func TestAManifestOfTheNativeKind(t *testing.T) {
	fields := func(of reflect.Type, path ...string) map[string]reflect.Type {
		for _, key := range path {
			of = jsonfields.Of(jsonfields.Elem(of))[key]
		}
		return jsonfields.Of(jsonfields.Elem(of))
	}
	native, ours := reflect.TypeFor[appsv1.DaemonSetSpec](), reflect.TypeFor[appsv1beta1.DaemonSetSpec]()
	for _, path := range [][]string{nil, {"updateStrategy"}, {"updateStrategy", "rollingUpdate"}} {
		for field := range fields(native, path...) {
			if _, found := fields(ours, path...)[field]; !found {
				t.Errorf("there is no field %v.%s", path, field)
			}
		}
	}
	for _, manifest := range []string{nativeManifest, strings.Replace(nativeManifest,
		`"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1,"maxSurge":0}},`, "", 1)} {
		if err := decodeStrictly(manifest, &appsv1.DaemonSet{}); err != nil {
			t.Fatalf("the native kind: %v", err)
		}
		manifest = strings.Replace(manifest, "apps/v1", "apps.kruise.io/v1beta1", 1)
		if err := decodeStrictly(manifest, &appsv1beta1.DaemonSet{}); err != nil {
			t.Fatal(err)
		}
		var document daemonset.Document
		if err := json.Unmarshal([]byte(manifest), &document); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(daemonset.Default(daemonset.DefaultRequest{Version: "v1beta1", New: document}))
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatchapply.DecodePatch(text)
		if err != nil {
			t.Fatal(err)
		}
		completed, err := patch.Apply([]byte(manifest))
		if err != nil {
			t.Fatal(err)
		}
		set := &appsv1beta1.DaemonSet{}
		if err := json.Unmarshal(completed, set); err != nil {
			t.Fatal(err)
		}
		rollsOutLikeTheNativeKind(t, set)
	}
}

func rollsOutLikeTheNativeKind(t *testing.T, set *appsv1beta1.DaemonSet) {
	t.Helper()
	s := simulate(1, set, daemonset.Features{}, "n1", "n2", "n3")
	s.Change(nodeKey("n1"), func(o client.Object) { o.(*corev1.Node).Spec.Unschedulable = true }) // which daemons tolerate
	var happened []string
	s.BeforeWrite = func(w simulation.Write, before, after client.Object) {
		if w.Key.Kind != "Pod" || w.Verb == "patch" {
			return
		}
		pod, _ := before.(*corev1.Pod)
		if w.Verb == "create" {
			pod = after.(*corev1.Pod)
		}
		happened = append(happened, w.Verb+" "+nodes.Target(pod))
		down := 0
		for _, node := range []string{"n1", "n2", "n3"} {
			if len(s.PodsOn(node)) == 0 || s.PodsOn(node)[0].DeletionTimestamp != nil || s.PodsOn(node)[0].Status.Phase != corev1.PodRunning {
				down++
			}
		}
		if w.Verb == "delete" && down > 0 {
			t.Errorf("%v, and %d nodes have no pod that runs", happened, down)
		}
		if len(pod.Spec.Tolerations) != 6 {
			t.Errorf("number of tolerations of the pod: got %d, want 6\n%+v", len(pod.Spec.Tolerations),
				pod.Spec.Tolerations)
		}
	}
	s.RunFor(time.Minute)
	s.Edit(image("agent:2"))
	s.RunFor(time.Minute)
	want := []string{"create n1", "create n2", "create n3", "delete n3", "create n3", "delete n2", "create n2", "delete n1", "create n1"}
	first := map[string]bool{}
	for _, word := range happened[:min(3, len(happened))] { // creations go on side by side
		first[word] = true
	}
	if is := s.set().Status; len(first) != 3 {
		t.Errorf("number of the first: got %d, want 3\n%v\n%+v", len(first), happened, is)
	} else if !cmp.Equal(want[3:], happened[3:]) {
		t.Errorf("want: got %q, want %q\n%v\n%+v", want[3:], happened[3:], happened, is)
	} else if is.NumberAvailable != 3 {
		t.Errorf("available pods: got %d, want 3\n%v\n%+v", is.NumberAvailable, happened, is)
	} else if is.UpdatedNumberScheduled != 3 {
		t.Errorf("updated pods: got %d, want 3\n%v\n%+v", is.UpdatedNumberScheduled, happened, is)
	}
}

// TestWhatTheKindIsFor shows ADS-001, with the tests of each of these: one pod for every eligible node, as of
// the native kind, and each of the things that this kind adds does something that the native one does not.
func TestWhatTheKindIsFor(t *testing.T) {
	all := []string{"n1", "n2", "n3", "n4"}
	for name, tt := range map[string]struct {
		options []option
		nodes   []string
		want    string // the images, five minutes after image agent:2
		same    bool   // the pods are the same
	}{
		"native":              {nil, all, "2 2 2 2", false},
		"in place":            {[]option{inPlace}, all, "2 2 2 2", true},
		"a partition":         {[]option{partition(3)}, all, "1 1 1 2", false},
		"a partition of half": {[]option{rolling(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.Partition = percent("50%") })}, all, "1 1 2 2", false},
		"a selector, of no node": {[]option{rolling(func(r *appsv1beta1.RollingUpdateDaemonSet) {
			r.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}
		})}, all, "1 1 1 1", true},
		"paused":                   {[]option{paused(true)}, all, "1 1 1 1", true},
		"a surge":                  {[]option{maxSurge(2)}, all, "2 2 2 2", false},
		"a hook that nobody hears": {[]option{drained}, all, "1 1 1 1", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, makeSet(tt.options...), everything, tt.nodes...)
			before := map[any]bool{}
			for _, pod := range s.AllPods() {
				before[pod.UID] = true
			}
			s.Edit(func(set *appsv1beta1.DaemonSet) {
				setTemplate(set, strings.Replace(string(set.Spec.Template.Raw()), "agent:1", "agent:2", 1))
			})
			s.RunFor(5 * time.Minute)
			same := true
			for _, pod := range s.AllPods() {
				same = same && before[pod.UID]
			}
			if got := s.images(); got != tt.want {
				t.Errorf("images: got %q, want %q; %s, the same pods: %t\n%s", got, tt.want, s.images(), same,
					s.describe())
			}
			if same != tt.same {
				t.Errorf("same: got %t, want %t; %s, the same pods: %t\n%s", same, tt.same, s.images(), same, s.describe())
			}
		})
	}
	s := simulate(1, makeSet(partition(3), func(set *appsv1beta1.DaemonSet) {
		set.Spec.ScaleStrategy = &appsv1beta1.DaemonSetScaleStrategy{PartitionedScaling: true}
	}), everything, all...)
	s.RunFor(time.Minute)
	if s.images() != "1   " { // burst limit and image pulls are shown by TestBurstReplicasFollow and TestImagesArePulledAhead
		t.Errorf("images: got %q, want a pod on the first node alone", s.images())
	}
}
